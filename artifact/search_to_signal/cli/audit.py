"""Commands around the atlas of normalizers: audit a training log, and print the atlas."""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.base.progress import PLAIN_SECONDS, one_line, slow_progress
from search_to_signal.cli.options import Add, add_repeated, refuse_no_time

if TYPE_CHECKING:
    from search_to_signal.audit.findings import Findings
    from search_to_signal.audit.groups import RewardGroups
    from search_to_signal.audit.importers.base import ReadOptions
    from search_to_signal.audit.loss import Beside, Section
    from search_to_signal.verify.whose import Whose


def _exploits(arguments: argparse.Namespace) -> int:
    """Try five exploits at an evaluator: does it pay programs that do not solve its problem?

    An evaluator is a function from a program's text to its reward: higher is better, and an exception for one
    that fails. Each exploit is your honest program with a few lines more. It runs once, in a process of its
    own, but with no other protection than the evaluator's. Exits with 1 where one pays.
    """
    from search_to_signal.base import plugins
    from search_to_signal.sandbox.exploits import tried
    from search_to_signal.sandbox.leaky_evaluators import LEAKY, PROGRAM

    evaluate: Any = plugins.load(arguments.evaluator, LEAKY, "search_to_signal.evaluators")
    if not callable(evaluate):
        raise ConfigError(f"{arguments.evaluator} is no function: give one from a text to a reward")
    if arguments.program is None and arguments.evaluator not in LEAKY:
        raise ConfigError(f"{arguments.evaluator} needs --program: give a file with a program that it takes")
    code = PROGRAM
    if arguments.program is not None:
        code = arguments.program.read_text(encoding="utf-8", errors="replace")
    found = tried(evaluate, code)
    print(f"The honest program has reward {found[0].before:g}.")
    for one in found:
        became = one.ended or f"{one.exploited:g}"
        print(f"{'LEAKS' if one.leaks else 'ok':<6} {one.leak:<18} {became:<16} {one.leaks}".rstrip())
    return int(any(one.leaks for one in found))


def _worth(arguments: argparse.Namespace) -> None:
    """Did a search, or its training, pay? Its best beside what the same effort buys otherwise.

    Give the log of a run, or a directory of several runs. They are compared with independent answers to the
    first prompt, other runs (--against), and the start with random numbers (--tune).
    """
    from search_to_signal.audit import report
    from search_to_signal.audit.loss import Beside, Loss
    from search_to_signal.study.search_runs import SearchRun, read_runs
    from search_to_signal.study.worth import worth

    if arguments.tune is not None and arguments.tune < 1:
        raise ConfigError("--tune takes a number of at least 1")
    if {*arguments.paths} & {*arguments.against}:
        raise ConfigError("--against names a run that is asked about: give others")
    runs, against = (read_runs(paths, arguments.reward) for paths in (arguments.paths, arguments.against))
    tuned: tuple[SearchRun, ...] = ()
    if arguments.tune is not None:
        from search_to_signal.study.worth import tuned_runs

        with slow_progress("changing the start's numbers") as progress:
            tuned = tuned_runs(runs[0], len(runs), arguments.tune, progress)
    found = worth(runs, against, tuned, arguments.by).section()
    also = Beside(None, Loss(), {"worth": found})
    if arguments.out is not None:
        report.write(None, arguments.out, one_line(", ".join(map(str, arguments.paths))), also=also)
    print(report.as_json(None, also) if arguments.json else "\n".join(found.lines))


# Bytes: glibc adapts to arrays of less than 32 MiB.
_LARGEST_FREED = 31 * 1024 * 1024
_LAST = 10**9
# Groups that are written unless more are asked for: a million of them are no table to read.
_GROUPS = 20_000


def _audit(arguments: argparse.Namespace) -> int:
    """Audit the log of a GRPO trainer (TRL, verl, slime and others): what to change, the costliest first."""
    from search_to_signal.audit import report
    from search_to_signal.audit.importers.base import ReadOptions
    from search_to_signal.audit.importers.scalar_files import NoRolloutsError
    from search_to_signal.audit.loss import beside

    if arguments.groups < 1:
        raise ConfigError(f"--groups {arguments.groups}: give how many groups to list and open, 1 or more")
    limits = _limits(arguments.fail_on)
    weights = dict(map(_component, arguments.component))
    options = ReadOptions(
        label=arguments.label,
        reward=arguments.reward,
        components=tuple(weights) or None,
        weights=weights,
        group_size=arguments.group_size,
        columns=_columns(arguments.map),
    )
    if arguments.follow:
        _follow(arguments, options)
    sampler = _sampler(arguments)
    sections = {} if sampler is None else {"sampler": sampler.section()}
    try:
        format, findings, also = _audit_log(arguments, options, sections)
    except NoRolloutsError:
        also = replace(beside(arguments.path), sections=sections)
        if also.scalars is None or not also.scalars.curves or limits:
            raise
        if arguments.out is not None:
            report.write(None, arguments.out, str(arguments.path), also=also)
        print(report.as_json(None, also) if arguments.json else report.scalars_text(also))
        return 0
    if arguments.json:
        print(report.as_json(findings, also))
    else:
        print(f"Read as {format}.")
        print(report.text(findings, also))
    code = _exit_code(findings, limits)
    return 1 if sampler is not None and sampler.is_otherwise else code


def _sampler(arguments: argparse.Namespace) -> "Whose | None":
    if arguments.model is None:
        if arguments.adapter:
            raise ConfigError("--adapter needs --model: give the model that it is an adapter of")
        return None
    from search_to_signal.audit.importers.rollouts import rollouts
    from search_to_signal.models.sampling import Drawing
    from search_to_signal.verify.whose import Named, whose

    first, _, last = arguments.steps.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal()):
        raise ConfigError(f"--steps {arguments.steps}: give a step, or two as in 100-120")
    steps = range(int(first), int(last or first) + 1)
    drawing = Drawing(arguments.temperature, arguments.top_p, arguments.top_k)
    named = Named(arguments.model, tuple(arguments.adapter), drawing, arguments.tokens, arguments.device)
    found = (one for one in rollouts(arguments.path, arguments.format) if one.step in steps or one.step < 0)
    with slow_progress("reading the log by the model") as progress:
        return whose(found, named, progress)


def _audit_log(
    arguments: argparse.Namespace, options: "ReadOptions", sections: "Mapping[str, Section]"
) -> tuple[str, "Findings", "Beside"]:
    from search_to_signal.audit import importers
    from search_to_signal.audit.importers.base import ScatteredGroupsError

    form, files = importers.find(arguments.path, arguments.format, options.columns)
    with suppress(ScatteredGroupsError):
        # Most writers keep the rows of a group together; such a log is read once.
        return form.name, *_audit_batches(
            arguments, form.name, replace(options, together=True), files, sections
        )
    return form.name, *_audit_batches(arguments, form.name, options, files, sections)


def _audit_batches(
    arguments: argparse.Namespace,
    form: str,
    options: "ReadOptions",
    files: Sequence[Path],
    sections: "Mapping[str, Section]",
) -> tuple["Findings", "Beside"]:
    from search_to_signal.audit import importers, report
    from search_to_signal.audit.findings import audit
    from search_to_signal.audit.group_files import GroupTable, compared
    from search_to_signal.audit.importers import USUAL
    from search_to_signal.audit.loss import beside

    _keep_freed_memory()
    batches = _with_progress(importers.read(arguments.path, form, options))
    usual = USUAL.get(form)
    if arguments.out is None:
        findings = audit(batches, arguments.normalizer, usual)
        return findings, replace(beside(arguments.path, findings, files), sections=sections)
    rows = GroupTable(compared(arguments.normalizer or usual), arguments.groups)
    findings = audit(batches, arguments.normalizer, usual, rows.add)
    also = replace(beside(arguments.path, findings, files), sections=sections)
    report.write(findings, arguments.out, str(arguments.path), rows.data(), also)
    rows.write_files(arguments.out)
    return findings, also


def _keep_freed_memory() -> None:
    """Let glibc reuse the memory of freed arrays, which it otherwise returns to the kernel one by one.

    It adapts to the largest array that was freed. This one is never touched, so it takes no memory.
    """
    import numpy as np

    np.empty(_LARGEST_FREED, dtype=np.uint8)


def _follow(arguments: argparse.Namespace, options: "ReadOptions") -> None:
    """Print new steps and update the files of ``--out`` until interrupted."""
    from search_to_signal.audit.live import Following

    refuse_no_time("--every", arguments.every)
    if not arguments.path.exists():
        raise RecordError(f"{arguments.path} does not exist: give the directory that the run writes into")
    log = Following(arguments.path, arguments.format, options, arguments.normalizer)
    changed, next_update = False, 0.0
    with suppress(KeyboardInterrupt):
        while True:
            for line in log.look():
                # With --json, standard output is one document.
                print(one_line(line), file=sys.stderr if arguments.json else sys.stdout, flush=True)
                changed = True
            if changed and arguments.out is not None and time.monotonic() >= next_update:
                start, changed = time.monotonic(), False
                # A file may be incomplete at this moment; the next update reads it again.
                with suppress(RecordError):
                    _audit_log(arguments, options, {})
                # Updates take at most a tenth of the time, also for long logs.
                next_update = time.monotonic() + 9.0 * (time.monotonic() - start)
            time.sleep(arguments.every)


def _columns(given: Sequence[str]) -> dict[str, str]:
    """Parse ``reward=score,group=prompt_id`` as columns by meaning; raises ConfigError for another form."""
    pairs = [pair.partition("=") for text in given for pair in text.split(",")]
    if wrong := [name + equals for name, equals, column in pairs if not name or not column]:
        raise ConfigError(
            f"--map {wrong[0] or ','.join(given)}: give columns as in reward=score,group=prompt_id"
        )
    return {name: column for name, _, column in pairs}


def _with_progress(batches: "Iterable[RewardGroups]") -> "Iterator[RewardGroups]":
    """Yield the batches, and print the number of audited groups from time to time."""
    rows = groups = 0
    start = printed = time.monotonic()
    for batch in batches:
        yield batch
        rows, groups = rows + len(batch.reward), groups + len(batch.step)
        if time.monotonic() - printed >= PLAIN_SECONDS:
            printed = time.monotonic()
            note = (
                f"audited {groups:,} groups, {rows:,} completions in {printed - start:.0f} s: {batch.source}"
            )
            print(f"s2s: {one_line(note)}", file=sys.stderr, flush=True)


def _component(given: str) -> tuple[str, float]:
    """Parse ``format=0.5`` as a column and its weight, by default 1; raises ConfigError for another form."""
    name, _, text = given.partition("=")
    try:
        weight = float(text or 1.0)
    except ValueError:
        weight = math.nan
    if not name or not math.isfinite(weight):
        raise ConfigError(f"--component {given}: give a column, or a column and its weight as in format=0.5")
    return name, weight


def _limits(given: Sequence[str]) -> dict[str, float]:
    """Parse ``dead=0.5`` as a name and a share; raises ConfigError for another form."""
    from search_to_signal.audit.report import MEANING

    limits = {}
    for text in given:
        name, _, share = text.partition("=")
        try:
            limits[name] = float(share)
        except ValueError as error:
            raise ConfigError(f"--fail-on {text}: give a name and a share, such as dead=0.5") from error
        if name not in MEANING or not 0 <= limits[name] <= 1:
            raise ConfigError(
                f"--fail-on {text}: give a share from 0 to 1 of one of {', '.join(sorted(MEANING))}"
            )
    return limits


def _exit_code(findings: "Findings", limits: dict[str, float]) -> int:
    """1 where a share exceeds its limit, which is printed; 0 otherwise."""
    exceeded = {name: findings.share(name) for name, limit in limits.items() if findings.share(name) > limit}
    for name, share in exceeded.items():
        print(f"s2s: FAILED: the share of {name} is {share:.4f}, over {limits[name]:g}", file=sys.stderr)
    return 1 if exceeded else 0


def _normalizers(arguments: argparse.Namespace) -> None:
    """List the normalizers of the frameworks: how each turns the rewards of a group into advantages."""
    from search_to_signal.audit.atlas import chosen, document, sources, table

    entries = chosen(arguments.name)
    if not entries:
        frameworks = sorted({source.framework for source in sources().values()})
        raise ConfigError(
            f"the atlas has no name or framework that begins with {arguments.name!r}: frameworks are "
            f"{', '.join(frameworks)}"
        )
    print(json.dumps(document(entries), indent=2) if arguments.json else table(entries))


def _add_sampler(command: argparse.ArgumentParser) -> None:
    asked = command.add_argument_group("whose rollouts", "which model, adapter, template and way of drawing")
    text = "the model that sampled, a directory: find out whether it did, and how"
    asked.add_argument("--model", type=Path, metavar="DIR", help=text)
    text = "its LoRA adapter; the last is the one that should have sampled"
    add_repeated(asked, "--adapter", text, Path, "DIR")
    asked.add_argument("--temperature", type=float, default=1.0, help="of the sampler (default: 1)")
    asked.add_argument("--top-p", type=float, default=1.0, help="of the sampler (default: none)")
    asked.add_argument("--top-k", type=int, help="of the sampler (default: none)")
    asked.add_argument("--steps", default=f"0-{_LAST}", metavar="A[-B]", help="rollouts of these steps only")
    asked.add_argument("--tokens", type=int, default=2000, help="read about so many at most (default: 2000)")
    asked.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the model computes")


def register(add: Add) -> None:
    command = add(_audit, "s2s audit completions/ --fail-on dead=0.5")
    command.add_argument("path", type=Path, metavar="PATH", help="a log file, or the directory that holds it")
    command.add_argument("--format", help="the format of the log, if it is not recognized")
    command.add_argument(
        "--normalizer", metavar="NAME", help="the trainer's normalizer, as s2s normalizers names it"
    )
    command.add_argument(
        "--class", dest="label", metavar="COLUMN", help="the column that holds the class of a completion"
    )
    command.add_argument(
        "--reward", metavar="NAME", help="the reward that was trained, if the log has several"
    )
    text = "what the columns of any JSON, CSV or Parquet file mean: group, reward, step, advantage and others"
    add_repeated(command, "--map", text, metavar="NAME=COLUMN,...")
    text = "for TRL's logs and mapped files: a column that is part of the reward, and its weight"
    add_repeated(command, "--component", text, metavar="COLUMN[=WEIGHT]")
    command.add_argument(
        "--group-size", type=int, metavar="G", help="split runs of one prompt into groups of G"
    )
    _add_sampler(command)
    command.add_argument("--out", type=Path, metavar="DIR", help="write a page, JSON and CSV there")
    text = f"groups that the page opens and groups.csv lists, the first of the log (default: {_GROUPS})"
    command.add_argument("--groups", type=int, default=_GROUPS, metavar="N", help=text)
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    text = "print each step as it is written, until interrupted; then the report"
    command.add_argument("--follow", action="store_true", help=text)
    command.add_argument(
        "--every", type=float, default=5.0, metavar="SECONDS", help="how often --follow reads the log"
    )
    text = (
        "exit with code 1 if more than this share of groups (in a search: candidates) is NAME, such as dead"
    )
    add_repeated(command, "--fail-on", text, metavar="NAME=SHARE")
    atlas = add(_normalizers, "s2s normalizers verl --json")
    atlas.add_argument("name", nargs="?", help="show only entries whose name or framework begins with this")
    atlas.add_argument("--json", action="store_true", help="everything the atlas says, as JSON")
    command = add(_worth, "s2s worth results/cohort/native-s*[0-9] --against results/cohort/frozen-s*[0-9]")
    text = "a log of OpenEvolve, ShinkaEvolve, LLM4AD or s2s, or a directory of several"
    command.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=text)
    text = "runs without what shall have paid, such as training, from the same start"
    command.add_argument("--against", nargs="+", default=[], type=Path, metavar="PATH", help=text)
    text = "equal effort: calls of the evaluator (the default where logged), answers, tokens or seconds"
    command.add_argument("--by", choices=("calls", "answers", "tokens", "seconds"), help=text)
    text = "problems of s2s only: for each run, try so many random changes of its start's numbers"
    command.add_argument("--tune", type=int, metavar="TRIES", help=text)
    command.add_argument("--reward", metavar="NAME", help="the score, if the log has several")
    command.add_argument("--out", type=Path, metavar="DIR", help="write a page and JSON there")
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    command = add(_exploits, "s2s exploits my_module:evaluate --program seed.py")
    text = "your PKG.MOD:OBJ, whose code will run, or one that leaks: nan_is_best, scorer_in_process, "
    text += "cached_instances, patched_timer, parent_in_reach"
    command.add_argument("evaluator", metavar="EVALUATOR", help=text)
    command.add_argument("--program", type=Path, metavar="FILE", help="an honest program that it takes")
