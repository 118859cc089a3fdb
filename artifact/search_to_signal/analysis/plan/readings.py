"""The metric of every run that a question asks for, each run read once and over the groups that count."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from search_to_signal.analysis.metrics.search import ratio
from search_to_signal.analysis.results import RecordedRun, load_runs
from search_to_signal.records.anchor import loop_seconds
from search_to_signal.records.manifest import Manifest, finished_manifest, run_name
from search_to_signal.records.plan import Plan, Question
from search_to_signal.runtime import mapped

PROGRAMS = "valid_program_uniqueness"


@dataclass(frozen=True)
class Reading:
    """A metric over the first ``groups`` groups of a run, whose place is below the recorded evidence."""

    place: str
    groups: int
    metric: str


@dataclass(frozen=True)
class Pair:
    """The readings of one question and seed, first and second side, or of the only side."""

    seed: int
    sides: tuple[Reading, ...]
    remark: str = ""


def place_of(side: str, seed: int) -> str:
    """The place of a side's run, PROFILE/LAYER/CONDITION with its seed."""
    folder, _, condition = side.rpartition("/")
    return f"{folder}/{run_name(condition, seed)}"


def pairs_of(root: Path, plan: Plan, question: Question, sides: Sequence[str]) -> list[Pair]:
    """The seeds that are recorded on every side, in the plan's order, with what is read of them."""
    found = []
    for seed in plan.seeds.seeds[: question.seeds]:
        places = [place_of(side, seed) for side in sides]
        manifests = [finished_manifest(root / place) for place in places]
        known = [manifest for manifest in manifests if manifest is not None]
        if len(known) == len(places):
            found.append(_pair(root, question, seed, places, known))
    return found


def _pair(
    root: Path, question: Question, seed: int, places: Sequence[str], manifests: Sequence[Manifest]
) -> Pair:
    due = [question.horizon // manifest.facts.group_size for manifest in manifests]
    groups = [min(count, m.facts.groups) for count, m in zip(due, manifests, strict=True)]
    remarks = [f"{place} has fewer groups" for place, a, b in zip(places, due, groups, strict=True) if b < a]
    if question.match == "processor_time" and len(places) > 1:
        remarks = remarks[:1] if groups[0] < due[0] else []
        groups[1], short = _bought(root, places, groups[0])
        remarks += [f"{places[1]} ends before the time does"] if short else []
    sides = (Reading(p, g, question.metric) for p, g in zip(places, groups, strict=True))
    return Pair(seed, tuple(sides), "; ".join(remarks))


def _bought(root: Path, places: Sequence[str], groups: int) -> tuple[int, bool]:
    """The longest prefix of the second run within the first one's seconds; whether all of it is (D61)."""
    first, second = (loop_seconds(root / place, "processor") for place in places[:2])
    budget = sum(first[:groups])
    within = sum(total <= budget for total in accumulate(second))
    return max(within, 1), within == len(second)


def values_of(root: Path, readings: Iterable[Reading]) -> dict[Reading, float | None]:
    """Every reading's value, None where the metric does not exist; raises as ``load_runs`` does."""
    asked: dict[str, set[tuple[int, str]]] = {}
    for reading in readings:
        asked.setdefault(reading.place, set()).add((reading.groups, reading.metric))
    shares = [(root, place, sorted(wanted)) for place, wanted in sorted(asked.items())]
    return {reading: value for found in mapped(_read, shares, 16) for reading, value in found.items()}


Share = tuple[Path, str, Sequence[tuple[int, str]]]


def _read(share: Share) -> dict[Reading, float | None]:
    root, place, wanted = share
    (run,) = load_runs(root / place, root)
    parts = {groups: run.prefix(groups) for groups, _ in wanted}
    return {Reading(place, groups, metric): _metric(parts[groups], metric) for groups, metric in wanted}


def _metric(run: RecordedRun, metric: str) -> float | None:
    if metric == PROGRAMS:
        valid = [record for group in run.groups for record in group if record.score is not None]
        return ratio(len({record.program_sha256 for record in valid}), len(valid))
    value: float | None = getattr(run.metrics, metric)
    return value
