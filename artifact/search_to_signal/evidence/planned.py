"""Recorded evidence held against its plan, and the README's table against the rebuilt one."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from search_to_signal.analysis.plan.outcomes import QuestionOutcome
from search_to_signal.errors import RunDirectoryError, reason
from search_to_signal.progress import counted
from search_to_signal.provenance.checksums import SUMS, read_sums, sha256_file
from search_to_signal.records.amendments import AMENDMENTS
from search_to_signal.records.layers import PROBE
from search_to_signal.records.manifest import (
    ROSTER,
    finished_manifest,
    read_manifest,
    read_roster,
    run_directories,
    runs_below,
)
from search_to_signal.records.plan import PLAN, Plan, Question
from search_to_signal.records.probe import INITIAL, read_probe

_SHOWN = 3


def plan_problems(
    root: Path, unpacked: Path, plan: Plan, sha256: str, found: Sequence[QuestionOutcome]
) -> Iterator[str]:
    """Where packed evidence is not what its plan names, one line each; ``sha256`` is the plan's as it stands.

    ``found`` are the plan's outcomes. What is planned follows from the plan alone: a roster that names less,
    and seeds out of the plan's order, are chosen by somebody. A study after the first of which nothing is
    recorded is told elsewhere.
    """
    if read_sums(root).get(PLAN.name) != sha256:
        yield f"{PLAN.name}: {SUMS} does not list it with these bytes: the plan was changed; restore it"
    yield from _amendment_problems(root, found)
    under = {run: read_manifest(run).plan_sha256 for run in runs_below(unpacked)}
    if other := [run for run, held in under.items() if held != sha256]:
        names = [run.relative_to(unpacked).as_posix() for run in sorted(other)]
        told = counted(len(other), "run")
        yield f"{PLAN.name}: {told} recorded under another plan, or none: {_some(names)}"
    due: dict[str, dict[str, int]] = defaultdict(dict)
    for study in plan.studies:
        for question in study.questions:
            for side, seeds in _sides(plan, question):
                due[side] = seeds if len(seeds) > len(due[side]) else due[side]
    first = {side for question in plan.studies[0].questions for side, _ in _sides(plan, question)}
    for side, runs in due.items():
        yield from _side_problems(unpacked, side, runs, side in first)


def _amendment_problems(root: Path, found: Sequence[QuestionOutcome]) -> Iterator[str]:
    listed, file = read_sums(root).get(AMENDMENTS), root / AMENDMENTS
    if listed != (sha256_file(file) if file.is_file() else None):
        yield f"{AMENDMENTS}: {SUMS} does not list it as it is here: it was changed; restore both"
    closed = {one.study.key for one in found if one.closed and not one.answered_elsewhere}
    closed_short = {one.study.key for one in found if one.closed_short}
    for study in sorted(closed - closed_short):
        yield f"{AMENDMENTS}: it closes {study}, of which every seed is recorded: leave that study out"


def _sides(plan: Plan, question: Question) -> Iterator[tuple[str, dict[str, int]]]:
    """Each side of a question with the names of its runs, in the plan's order."""
    seeds = plan.seeds.seeds[: question.seeds]
    for side in dict.fromkeys(side for pair in question.pairs for side in pair):
        yield side, {f"{side.rpartition('/')[2]}-s{seed}": seed for seed in seeds}


def _side_problems(top: Path, side: str, due: dict[str, int], first: bool) -> Iterator[str]:
    place = side.rpartition("/")[0]
    directory = top / place
    if not directory.is_dir() and not first:
        return
    if directory.name == PROBE:
        yield from _probe_problems(directory, side, list(due))
        return
    roster = set(read_roster(directory))
    if lacking := [name for name in due if name not in roster]:
        yield f"{place}/{ROSTER} lacks {len(lacking)} of {len(due)} planned runs: {_some(lacking)}"
    there = [finished_manifest(directory / name) is not None for name in due]
    number = sum(there)
    if chosen := [name for name, one in list(zip(due, there, strict=True))[:number] if not one]:
        yield f"{side}: recorded seeds are not the plan's first {number}: {_some(chosen)} missing"
    condition = side.rpartition("/")[2]
    runs = [run.name for run in run_directories(directory) if run.name.rpartition("-s")[0] == condition]
    if unasked := [name for name in runs if name not in due]:
        told = counted(len(unasked), "run")
        yield f"{side}: {told} of seeds that the plan does not ask for: {_some(unasked)}"


def _probe_problems(directory: Path, side: str, due: Sequence[str]) -> Iterator[str]:
    """A probe is one recording of many checkpoints, of which its manifest is the list."""
    known = {checkpoint.name for checkpoint in read_probe(directory).checkpoints}
    names = [INITIAL] if side.endswith(f"/{INITIAL}") else due
    if lacking := [name for name in names if name not in known]:
        yield f"{side}: the probe lacks {len(lacking)} of {len(names)} planned checkpoints: {_some(lacking)}"


def table_problems(page: Path, answers: Sequence[str], required: str) -> Iterator[str]:
    """Where a page's tables are not those of answers, each a heading over a pipe table, row by row.

    The page may have any of them, whole; it has the ``required`` one.
    """
    try:
        lines = [line.strip() for line in page.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise RunDirectoryError(f"cannot read {page} ({reason(error)}): restore the file") from error
    made = [_rows(answer) for answer in answers]
    blocks = [
        list(takewhile(lambda line: line.startswith("|"), lines[start:]))
        for start, line in enumerate(lines)
        if any(line == rows[0] for rows in made)
    ]
    meant = [max(made, key=lambda rows: len({*rows} & {*held})) for held in blocks]
    if _rows(required) not in meant:
        lacking = (row for row in _rows(required) if row not in lines)
        yield from (f"{page.name}: its table lacks the rebuilt row {row}" for row in lacking)
    for held, rows in zip(blocks, meant, strict=True):
        yield from (f"{page.name}: its table lacks the rebuilt row {row}" for row in rows if row not in held)
        yield from (
            f"{page.name}: its table has a row that is not rebuilt: {row}" for row in held if row not in rows
        )
        if set(held) == set(rows) and held != rows:
            yield f"{page.name}: its table has the rebuilt rows in another order, or twice"


def _rows(answer: str) -> list[str]:
    return [line.strip() for line in answer.splitlines() if line.startswith("|")]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
