"""Checks of recorded evidence against its plan, and of a page's first table against the rebuilt one."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from search_to_signal.base.errors import RunDirectoryError, reason
from search_to_signal.base.progress import counted
from search_to_signal.records.amendments import AMENDMENTS
from search_to_signal.records.checksums import SUMS, read_sums, sha256_file
from search_to_signal.records.conditions import run_name, split_run_name
from search_to_signal.records.files import read_regular
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
from search_to_signal.study.verdicts import QuestionOutcome

_SHOWN = 3


def plan_problems(
    root: Path, unpacked: Path, plan: Plan, sha256: str, outcomes: Sequence[QuestionOutcome]
) -> Iterator[str]:
    """Yield differences between packed evidence and its plan; ``sha256`` is that of the plan's file.

    The plan alone determines the runs: a roster that names fewer, and seeds out of the plan's order, are
    problems, and so is a run in the place of another. A later study of which nothing is recorded is none: the
    plan's page lists it.
    """
    if read_sums(root).get(PLAN.name) != sha256:
        yield f"{PLAN.name}: {SUMS} does not list it with these bytes: the plan was changed; restore it"
    listed, file = read_sums(root).get(AMENDMENTS), root / AMENDMENTS
    if listed != (sha256_file(file) if file.is_file() else None):
        yield f"{AMENDMENTS}: {SUMS} does not list it as it is here: it was changed; restore both"
    closed = {outcome.study.key for outcome in outcomes if outcome.closed and not outcome.answered_elsewhere}
    short = {outcome.study.key for outcome in outcomes if outcome.closed_short}
    for study in sorted(closed - short):
        yield f"{AMENDMENTS}: it closes {study}, of which every seed is recorded: leave that study out"
    places = (run.relative_to(unpacked) for run in runs_below(unpacked))
    own = (place for place in places if place.parts[0] not in plan.controls)
    manifests = {place.as_posix(): read_manifest(unpacked / place) for place in own}
    if names := [name for name, manifest in manifests.items() if manifest.plan_sha256 != sha256]:
        count = counted(len(names), "run")
        yield f"{PLAN.name}: {count} recorded under another plan, or none: {shortened(names)}"
    for name, manifest in manifests.items():
        # Tables take a run for what its place says.
        facts, parts = manifest.facts, name.split("/")
        if (facts.layer, facts.name) != (parts[1], parts[-1]):
            yield f"{name} has the configuration of {facts.layer}/{facts.name}: restore the run that it names"
    planned = planned_sides(plan)
    first = {side for question in plan.studies[0].questions for side, _ in _sides(plan, question)}
    for side, runs in planned.items():
        yield from _side_problems(unpacked, side, runs, side in first)


def planned_sides(plan: Plan) -> dict[str, dict[str, int]]:
    """Return the runs of every condition that a plan asks for, seeds by name in its order.

    A condition is named ``PROFILE/LAYER/CONDITION``; of several questions the one with the most seeds counts.
    """
    planned: dict[str, dict[str, int]] = defaultdict(dict)
    for study in plan.studies:
        for question in study.questions:
            for side, seeds in _sides(plan, question):
                planned[side] = seeds if len(seeds) > len(planned[side]) else planned[side]
    return planned


def planned_orders(plan: Plan, profile: str) -> list[list[str]]:
    """Return the places of the runs that a plan asks of a profile, below its results, a condition each."""
    sides = ((side.rpartition("/")[0], runs) for side, runs in planned_sides(plan).items())
    return [
        [f"{layer.removeprefix(f'{profile}/')}/{run}" for run in runs]
        for layer, runs in sides
        if layer.startswith(f"{profile}/")
    ]


def _sides(plan: Plan, question: Question) -> Iterator[tuple[str, dict[str, int]]]:
    seeds = plan.seeds.seeds[: question.seeds]
    for side in dict.fromkeys(side for pair in question.pairs for side in pair):
        yield side, {run_name(side.rpartition("/")[2], seed): seed for seed in seeds}


def _side_problems(top: Path, side: str, planned: dict[str, int], first: bool) -> Iterator[str]:
    folder = side.rpartition("/")[0]
    directory = top / folder
    if not directory.is_dir() and not first:
        return
    if directory.name == PROBE:
        recorded = {checkpoint.name for checkpoint in read_probe(directory).checkpoints}
        names = [INITIAL] if side.endswith(f"/{INITIAL}") else list(planned)
        if lacking := [name for name in names if name not in recorded]:
            count = f"{len(lacking)} of {len(names)}"
            yield f"{side}: the probe lacks {count} planned checkpoints: {shortened(lacking)}"
        return
    roster = set(read_roster(directory))
    if lacking := [name for name in planned if name not in roster]:
        yield f"{folder}/{ROSTER} lacks {len(lacking)} of {len(planned)} planned runs: {shortened(lacking)}"
    finished = [name for name in planned if finished_manifest(directory / name) is not None]
    if skipped := [name for name in list(planned)[: len(finished)] if name not in finished]:
        number = len(finished)
        yield f"{side}: recorded seeds are not the plan's first {number}: {shortened(skipped)} missing"
    condition = side.rpartition("/")[2]
    runs = [run.name for run in run_directories(directory) if split_run_name(run.name)[0] == condition]
    if unplanned := [name for name in runs if name not in planned]:
        count = counted(len(unplanned), "run")
        yield f"{side}: {count} of seeds that the plan does not ask for: {shortened(unplanned)}"


def table_problems(page: Path, answers: Sequence[str], required: str) -> Iterator[str]:
    """Yield row by row the differences between a page's tables and rebuilt answers.

    An answer is a heading over a pipe table. The page may contain any of them completely, and has to contain
    the ``required`` one. Raises RunDirectoryError for a page that cannot be read.
    """
    try:
        lines = [line.strip() for line in read_regular(page).decode().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise RunDirectoryError(f"cannot read {page} ({reason(error)}): restore the file") from error
    rebuilt = [_rows(answer) for answer in answers]
    blocks = [
        list(takewhile(lambda line: line.startswith("|"), lines[start:]))
        for start, line in enumerate(lines)
        if any(line == rows[0] for rows in rebuilt)
    ]
    closest = [max(rebuilt, key=lambda rows: len({*rows} & {*block})) for block in blocks]
    if _rows(required) not in closest:
        lacking = (row for row in _rows(required) if row not in lines)
        yield from (f"{page.name}: its table lacks the rebuilt row {row}" for row in lacking)
    for block, rows in zip(blocks, closest, strict=True):
        yield from (f"{page.name}: its table lacks the rebuilt row {row}" for row in rows if row not in block)
        yield from (
            f"{page.name}: its table has a row that is not rebuilt: {row}" for row in block if row not in rows
        )
        if set(block) == set(rows) and block != rows:
            yield f"{page.name}: its table has the rebuilt rows in another order, or twice"


def _rows(answer: str) -> list[str]:
    return [line.strip() for line in answer.splitlines() if line.startswith("|")]


def shortened(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
