"""Commands that check what is on disk, and vouch for it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from search_to_signal.cli.base import (
    Add,
    add_repeated,
    allow_code,
    load_allowed,
    refuse_loose_sample,
    sample_seed,
)
from search_to_signal.cli.drawing import add_draws, draw_problems
from search_to_signal.errors import ConfigError
from search_to_signal.extras import EXTRAS, require
from search_to_signal.progress import counted, one_line, progress_display
from search_to_signal.runtime import without_cycle_search

if TYPE_CHECKING:
    from search_to_signal.verification.consistency.verify import Verdict

# Places of one reason that are printed.
_SHOWN = 3

# Options, and the levels that they are for.
_LEVELS_OF = (
    (("state", "slots", "problem", "host"), ("recompute",)),
    (("sample", "seed", "model"), ("recompute", "draws")),
    (("adapters", "updates", "rule"), ("draws",)),
)


def _verify(arguments: argparse.Namespace) -> int:
    """Check checksums and records."""
    from search_to_signal.records.manifest import runs_below
    from search_to_signal.verification import levels
    from search_to_signal.verification.consistency.verify import Verdict

    _refuse_loose_options(arguments)
    if arguments.recompute or arguments.draws:
        require(*EXTRAS["run"])
    load_allowed(arguments)
    used = [levels.VERIFY]
    if arguments.signer is not None:
        from search_to_signal.provenance.signature import signer

        name = signer(arguments.directory, arguments.signer, arguments.identity)
        print(f"signed by {one_line(name)}")
    if _without_list(arguments):
        print("no list of checksums here: files and records are not compared, the tokens alone are read")
        verdict, used = Verdict(0, len(runs_below(arguments.directory)), ()), []
    else:
        verdict = _verdict(arguments)
    problems = list(verdict.problems)
    if arguments.tables and _comparable(arguments.directory):
        problems += _table_problems(arguments.directory)
        used.append(levels.TABLES)
    _print_problems(problems)
    if arguments.recompute:
        problems += _recompute(arguments)
        used.append(levels.RECOMPUTE)
    if arguments.draws:
        problems += draw_problems(arguments)
        used.append(levels.DRAWS)
    if arguments.signer is not None:
        used.append(levels.SIGNATURE)
    state = "FAILED" if problems else "OK"
    counts = ((verdict.files, "file"), (verdict.runs, "run"), (len(problems), "problem"))
    print(f"s2s: {state}: {', '.join(counted(*count) for count in counts)}")
    if problems:
        return 1
    for level in used:
        print(levels.promise(level))
    return 0


def _without_list(arguments: argparse.Namespace) -> bool:
    """Whether only --draws is asked for, of runs without a list over all, as ``s2s unpack`` leaves them."""
    from search_to_signal.provenance.checksums import SUMS
    from search_to_signal.records.manifest import runs_below

    others = arguments.tables or arguments.recompute or arguments.signer is not None
    listed = (arguments.directory / SUMS).is_file()
    return arguments.draws and not others and not listed and bool(runs_below(arguments.directory))


def _verdict(arguments: argparse.Namespace) -> "Verdict":
    with without_cycle_search():
        from search_to_signal.verification.consistency.verify import verify

        return verify(arguments.directory, programs=arguments.tables)


def _comparable(directory: Path) -> bool:
    from search_to_signal.verification.recompute.tables import other_source

    other = other_source(directory)
    if other:
        print("tables not compared: made by another version of the source than this one")
    return not other


def _table_problems(directory: Path) -> list[str]:
    from search_to_signal.verification.recompute.tables import rebuilt_problems

    return list(rebuilt_problems(directory))


def _refuse_loose_options(arguments: argparse.Namespace) -> None:
    for names, levels in _LEVELS_OF:
        if any(getattr(arguments, level) for level in levels):
            continue
        for name in names:
            if getattr(arguments, name) not in (None, []):
                either = " or ".join(f"--{level}" for level in levels)
                raise ConfigError(f"--{name} is for {either}: give both, or neither")
    if arguments.identity is not None and arguments.signer is None:
        raise ConfigError("--identity is for --signer: give both, or neither")
    refuse_loose_sample(arguments, "slots")


def _recompute(arguments: argparse.Namespace) -> Sequence[str]:
    from search_to_signal.verification.recompute.directory import Options, recompute
    from search_to_signal.verification.recompute.tools import Sample

    sample = None
    if arguments.sample is not None:
        seed = sample_seed(arguments)
        print(f"executing {arguments.sample} groups of every run: --seed {seed} draws the same ones")
        sample = Sample(seed, arguments.sample)
    if arguments.state is None:
        print("without --state an interrupted recompute begins anew")
    options = Options(arguments.state, sample, tuple(arguments.model), arguments.slots or 1)
    with progress_display() as progress:
        done = recompute(arguments.directory, options, progress)
    _print_problems(done.problems)
    for reason, places in done.not_compared.items():
        first = "; ".join(places[:_SHOWN]) + ("; ..." if places[_SHOWN:] else "")
        print(one_line(f"NOT COMPARED {len(places)} x {reason} ({first})"))
    if done.problems and done.elsewhere:
        print(
            f"recorded with other {', '.join(done.elsewhere)}: last bits of scores may differ for that alone"
        )
    counts = done.counts
    print(
        f"recomputed: {counts['groups']} groups, {counts['completions']} texts parsed, programs of "
        f"{counts['executed']} groups, {counts['programs']} executions; "
        f"{sum(map(len, done.not_compared.values()))} not compared"
    )
    return done.problems


def _print_problems(problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"PROBLEM {one_line(problem)}")


def _seal(arguments: argparse.Namespace) -> None:
    """Sign a directory's SHA256SUMS with an SSH key."""
    from search_to_signal.provenance.signature import sign

    print(f"s2s: signature in {sign(arguments.directory, arguments.sign)}")


def register(add: Add) -> None:
    check = add(_verify, "s2s verify results/embedded")
    check.add_argument("directory", type=Path)
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
        "--state", type=Path, metavar="FILE", help="keep results here, and go on from them when interrupted"
    )
    check.add_argument("--slots", type=int, metavar="N", help="programs executed side by side (default: 1)")
    text = "a model of your own that may be read, its tokenizer by --recompute, its weights by --draws"
    add_repeated(check, "--model", text, Path, "DIR")
    allow_code(check, "problem", "host", note="with --recompute: ")
    check.add_argument(
        "--signer",
        type=Path,
        metavar="ALLOWED_SIGNERS",
        help="check the SSH signature over SHA256SUMS against this list of names and keys",
    )
    check.add_argument("--identity", metavar="NAME", help="the name that has to have signed")
    vouch = add(_seal, "s2s seal --sign ~/.ssh/id_ed25519 results/embedded")
    vouch.add_argument("directory", type=Path)
    vouch.add_argument("--sign", type=Path, required=True, metavar="KEY", help="private SSH key")
