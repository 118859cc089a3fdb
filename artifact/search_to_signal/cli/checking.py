"""Commands that verify and sign results directories."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from search_to_signal.base.errors import EXTRAS, ConfigError, RunDirectoryError, require
from search_to_signal.base.processes import without_cycle_search
from search_to_signal.base.progress import Progress, counted, one_line, progress_display
from search_to_signal.cli.options import (
    Add,
    add_repeated,
    allow_code,
    load_allowed,
    print_problems,
    print_result,
    refuse_loose_sample,
    sample_seed,
)
from search_to_signal.records.files import refuse_special_files

if TYPE_CHECKING:
    from search_to_signal.records.differences import Finding, VerificationResult
    from search_to_signal.verify.token_draws import RunDraws

# The number of printed problems of one run.
_TOKEN_DRAWS_SHOWN = 10


def draw_findings(arguments: argparse.Namespace) -> list["Finding"]:
    """Read recorded tokens, print a line for each run, and return the findings.

    Raises ConfigError where no token can be read.
    """
    from search_to_signal.run.again import Sample
    from search_to_signal.verify.token_draws import TokenDrawOptions, check_draws

    if arguments.updates is not None and arguments.updates < 0:
        raise ConfigError("--updates takes a number of at least 0")
    sample = None
    if arguments.sample is not None:
        seed = sample_seed(arguments)
        print(f"reading {counted(arguments.sample, 'group')} of every run: --seed {seed} draws the same")
        sample = Sample(seed, arguments.sample)
    options = TokenDrawOptions(sample, tuple(arguments.model), arguments.adapters, arguments.updates)
    with progress_display() as progress:
        runs = []
        for draws in check_draws(arguments.directory, options, progress):
            runs.append(draws)
            _print_run(draws, progress)
    _print_unread(runs)
    if not any(draws.tally.tokens or draws.findings for draws in runs):
        raise ConfigError("no token could be checked: the lines above say what is missing")
    tokens, unequal = (sum(getattr(draws.tally, name) for draws in runs) for name in ("tokens", "unequal"))
    print(
        f"draws: {counted(sum(draws.groups for draws in runs), 'group')} of "
        f"{counted(sum(draws.groups > 0 for draws in runs), 'run')}, {counted(tokens, 'token')}; {unequal} "
        "differ from what the random numbers draw"
    )
    return [finding.within(draws.name) for draws in runs for finding in draws.findings]


def _print_run(draws: "RunDraws", progress: Progress) -> None:
    tally = draws.tally
    if tally.tokens:
        differ = (
            f"{tally.unequal} differ, at most {tally.farthest:.2g} away in log-odds (rounding explains "
            f"{tally.bound}), together {tally.together:.2g} (rounding explains {tally.allowed:.2g})"
        )
        progress.say(
            f"{draws.name}: {counted(draws.groups, 'group')}, {counted(tally.tokens, 'token')}: "
            f"{differ if tally.unequal else 'all are what the random numbers draw'}{_adapter_text(draws)}"
        )
    print_problems(
        [finding.within(draws.name) for finding in draws.findings[:_TOKEN_DRAWS_SHOWN]], progress.say
    )
    if draws.findings[_TOKEN_DRAWS_SHOWN:]:
        progress.say(f"PROBLEM {draws.name}: and {len(draws.findings) - _TOKEN_DRAWS_SHOWN} more")


def _adapter_text(draws: "RunDraws") -> str:
    if not draws.updates:
        return ""
    text = f"; {draws.equal} of {counted(draws.updates, 'adapter')} made again have the recorded bits"
    if draws.adapter_distance is not None and draws.equal < draws.updates:
        text += f"; the final one differs by {draws.adapter_distance:.2g} of the smaller one's size"
    return text


def _print_unread(runs: Iterable["RunDraws"]) -> None:
    counts: dict[str, list[tuple[str, int]]] = {}
    for draws in runs:
        for reason, groups in draws.unread.items():
            counts.setdefault(reason, []).append((draws.name, groups))
    for reason, counts_by_run in counts.items():
        total, names = sum(groups for _, groups in counts_by_run), [name for name, _ in counts_by_run]
        first = ", ".join(names[:3]) + (", ..." if names[3:] else "")
        print(one_line(f"NOT CHECKED {counted(total, 'group')} of {first}: {reason}"))


def add_draws(check: argparse.ArgumentParser) -> None:
    """Add the option --draws and the options that belong to it alone."""
    check.add_argument(
        "--draws",
        action="store_true",
        help="read every recorded token through its model, and check that the run's random numbers draw it",
    )
    check.add_argument(
        "--updates",
        type=int,
        metavar="N",
        help="with --draws: repeat N updates of every run (default: all, or none if their bits differ here)",
    )
    check.add_argument(
        "--adapters",
        type=Path,
        metavar="DIR",
        help="with --draws: the directory into which s2s retrain wrote adapters",
    )
    allow_code(check, "rule", note="with --draws: ")


# The number of printed places for each reason.
_SHOWN = 3

# Options, and the levels of verification that use them.
_LEVELS_OF = (
    (("state", "slots", "problem", "host"), ("recompute",)),
    (("sample", "seed", "model"), ("recompute", "draws")),
    (("adapters", "updates", "rule"), ("draws",)),
)


def _verify(arguments: argparse.Namespace) -> int:
    """Check a results directory: every file's checksum, and the records against each other."""
    from search_to_signal import verify as levels
    from search_to_signal.records.differences import VerificationResult
    from search_to_signal.records.manifest import runs_below
    from search_to_signal.study.container import refuse_packed

    _refuse_loose_options(arguments)
    if arguments.recompute or arguments.draws:
        require(*EXTRAS["run"])
    load_allowed(arguments)
    refuse_special_files(arguments.directory)
    refuse_packed(arguments.directory, "s2s verify")
    used = [levels.VERIFY]
    if arguments.signer is not None:
        from search_to_signal.verify.directory import signer

        name = signer(arguments.directory, arguments.signer, arguments.identity)
        print(f"signed by {one_line(name)}")
    result = _consistency(arguments)
    if result is None:
        print("there is no list of checksums: only tokens are checked, files and records are not compared")
        result = VerificationResult(counts={"files": 0, "runs": len(runs_below(arguments.directory))})
        used = []
    findings = list(result.findings)
    if arguments.tables:
        from search_to_signal.verify.tables import other_source, table_findings

        if other_source(arguments.directory):
            print("tables not compared: another version of the source made them")
        else:
            findings += table_findings(arguments.directory)
            used.append(levels.TABLES)
    print_problems(findings)
    _print_not_compared(result)
    if arguments.recompute or arguments.draws:
        _print_other_stacks(arguments.directory)
    if arguments.recompute:
        findings += _recompute(arguments)
        used.append(levels.RECOMPUTE)
    if arguments.draws:
        findings += draw_findings(arguments)
        used.append(levels.DRAWS)
    if arguments.signer is not None:
        used.append(levels.SIGNATURE)
    problems = sum(finding.compared for finding in findings)
    counts = ((result.counts["files"], "file"), (result.counts["runs"], "run"), (problems, "problem"))
    code = print_result(problems, ", ".join(counted(*count) for count in counts))
    for level in () if problems else used:
        print(levels.promise(level))
    return code


def _consistency(arguments: argparse.Namespace) -> "VerificationResult | None":
    """Files and records compared; None for runs without a common list, where --draws alone is given.

    Raises RunDirectoryError for such runs otherwise: s2s unpack writes them of an unended study.
    """
    from search_to_signal.records.checksums import SUMS
    from search_to_signal.records.manifest import runs_below

    directory = arguments.directory
    runs = [] if (directory / SUMS).is_file() else runs_below(directory)
    if runs and arguments.draws and not (arguments.tables or arguments.recompute or arguments.signer):
        return None
    if runs and runs != [directory]:
        raise RunDirectoryError(
            f"{directory} has no {SUMS}: wait until its command has finished; if s2s unpack wrote it, "
            f"verify its {counted(len(runs), 'run')} one by one, {runs[0]} first"
        )
    with without_cycle_search():
        from search_to_signal.verify.directory import verify

        return verify(directory, programs=arguments.tables)


def _print_other_stacks(directory: Path) -> None:
    from search_to_signal.records.provenance import stack_here
    from search_to_signal.verify import OTHER_STACK
    from search_to_signal.verify.recompute import other_stacks

    for recorded in other_stacks(directory):
        print(f"recorded with {recorded}; here is {stack_here()}: {OTHER_STACK}")


def _refuse_loose_options(arguments: argparse.Namespace) -> None:
    for names, levels in _LEVELS_OF:
        if any(getattr(arguments, level) for level in levels):
            continue
        for name in names:
            if getattr(arguments, name) not in (None, []):
                either = " or ".join(f"--{level}" for level in levels)
                raise ConfigError(f"--{name} only works with {either}: give both, or neither")
    if arguments.identity is not None and arguments.signer is None:
        raise ConfigError("--identity only works with --signer: give both, or neither")
    refuse_loose_sample(arguments, "slots")


def _recompute(arguments: argparse.Namespace) -> tuple["Finding", ...]:
    from search_to_signal.run.again import Sample
    from search_to_signal.verify.recompute import RecomputeOptions, differing_environment, recompute

    sample = None
    if arguments.sample is not None:
        seed = sample_seed(arguments)
        drawn = counted(arguments.sample, "group")
        print(f"executing {drawn} of every run: --seed {seed} draws the same ones")
        sample = Sample(seed, arguments.sample)
    if arguments.state is None:
        print("without --state an interrupted recompute starts from the beginning")
    options = RecomputeOptions(arguments.state, sample, tuple(arguments.model), arguments.slots or 1)
    with progress_display() as progress:
        result = recompute(arguments.directory, options, progress)
    print_problems(result.findings)
    _print_not_compared(result)
    if result.problems and (facts := differing_environment(arguments.directory)):
        print(f"recorded with other {', '.join(facts)}: this can change the last bits of scores")
    counts = result.counts
    print(
        f"recomputed: {counted(counts['groups'], 'group')}, {counted(counts['completions'], 'text')} parsed, "
        f"programs of {counted(counts['executed'], 'group')}, {counted(counts['programs'], 'execution')}; "
        f"{sum(map(len, result.not_compared.values()))} not compared"
    )
    return result.findings


def _print_not_compared(result: "VerificationResult") -> None:
    for reason, places in result.not_compared.items():
        first = "; ".join(places[:_SHOWN]) + ("; ..." if places[_SHOWN:] else "")
        print(one_line(f"NOT COMPARED {len(places)} x {reason} ({first})"))


def _seal(arguments: argparse.Namespace) -> None:
    """Sign a directory's SHA256SUMS with an SSH key."""
    from search_to_signal.verify.directory import sign

    print(f"s2s: signature in {sign(arguments.directory, arguments.sign)}")


def register(add: Add) -> None:
    check = add(_verify, "s2s verify results/embedded")
    check.add_argument("directory", type=Path, help="results directory, or run")
    allow_code(check, "mapping", "normalizer")
    check.add_argument(
        "--tables",
        action="store_true",
        help="make tables, figures, audit and search draws again from the records, and compare (seconds)",
    )
    check.add_argument(
        "--recompute",
        action="store_true",
        help="parse every recorded text and execute every program again, in isolation",
    )
    add_draws(check)
    check.add_argument("--sample", type=int, metavar="N", help="execute or read only N groups of every run")
    check.add_argument("--seed", type=int, help="which groups --sample draws (default: drawn, and printed)")
    check.add_argument(
        "--state", type=Path, metavar="FILE", help="keep results here, so that an interrupted command goes on"
    )
    check.add_argument("--slots", type=int, metavar="N", help="programs executed side by side (default: 1)")
    text = "your own model: --recompute reads its tokenizer, --draws its weights"
    add_repeated(check, "--model", text, Path, "DIR")
    allow_code(check, "problem", "host", note="with --recompute: ")
    check.add_argument(
        "--signer",
        type=Path,
        metavar="ALLOWED_SIGNERS",
        help="check the SSH signature over SHA256SUMS against this list of names and keys",
    )
    check.add_argument("--identity", metavar="NAME", help="the name that must have signed")
    seal = add(_seal, "s2s seal --sign ~/.ssh/id_ed25519 results/embedded")
    seal.add_argument("directory", type=Path, help="results directory, or run")
    seal.add_argument("--sign", type=Path, required=True, metavar="KEY", help="private SSH key")
