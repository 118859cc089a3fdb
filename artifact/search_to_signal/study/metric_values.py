"""Metric values of the runs that a question compares; each run is read once, over the groups that count."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path, PurePosixPath

import msgspec

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.processes import mapped
from search_to_signal.layers.probe.tables import checkpoint_answers
from search_to_signal.records.anchor import Clock, loop_seconds, realized_groups, seconds_beside
from search_to_signal.records.conditions import run_name
from search_to_signal.records.layers import PROBE
from search_to_signal.records.manifest import finished_manifest
from search_to_signal.records.plan import Match, Plan, Question
from search_to_signal.records.probe import INITIAL, PROBE_MANIFEST, read_probe
from search_to_signal.records.reader import COMPLETIONS, read_records
from search_to_signal.records.schema import Outcome
from search_to_signal.report.metrics.search import new_programs, ratio
from search_to_signal.report.results import load_runs
from search_to_signal.report.tables.measures import MEASURES

PROBE_METRICS = ("valid_rate",)


@dataclass(frozen=True)
class MetricReading:
    """A metric over the first ``groups`` groups of a run; ``place`` is relative to the recorded evidence.

    A checkpoint of a probe counts as a run whose groups are the bank's prompts; all of them are read.
    """

    place: str
    groups: int
    metric: str

    @property
    def file(self) -> str:
        """The file of records that the value is computed from."""
        return f"{self.place}.jsonl" if _is_checkpoint(self.place) else f"{self.place}/{COMPLETIONS}"


@dataclass(frozen=True)
class SeedPair:
    """The readings of one question and seed: first and second side, or the only side.

    ``counts`` is false where the pair is left out: no prefix of the second run takes the same time, or the
    times of both do not compare.
    """

    seed: int
    sides: tuple[MetricReading, ...]
    remark: str = ""
    counts: bool = True


@dataclass(frozen=True)
class _RecordedSide:
    """A finished run, or a checkpoint with answers to the whole bank."""

    place: str
    groups: int
    group_size: int


def _is_checkpoint(place: str) -> bool:
    return PurePosixPath(place).parent.name == PROBE


def _find_recorded(root: Path, side: str, seed: int) -> _RecordedSide | None:
    """Return the run or checkpoint of a side (PROFILE/LAYER/CONDITION) and seed; None without one."""
    folder, _, condition = side.rpartition("/")
    name = run_name(condition, seed)
    if not _is_checkpoint(side):
        run = finished_manifest(root / folder / name)
        if run is None:
            return None
        return _RecordedSide(f"{folder}/{name}", run.facts.groups, run.facts.group_size)
    if not (root / folder / PROBE_MANIFEST).is_file():
        return None
    name = INITIAL if condition == INITIAL else name
    manifest = read_probe(root / folder)
    known = manifest.status == "complete" and name in {checkpoint.name for checkpoint in manifest.checkpoints}
    return _RecordedSide(f"{folder}/{name}", manifest.prompts, manifest.completions) if known else None


def pair_runs(root: Path, plan: Plan, question: Question, sides: Sequence[str]) -> list[SeedPair]:
    """Return a pair of readings for each seed that is recorded on every side, in the plan's order."""
    pairs = []
    for seed in plan.seeds.seeds[: question.seeds]:
        recorded = [_find_recorded(root, side, seed) for side in sides]
        present = [run for run in recorded if run is not None]
        if len(present) == len(sides):
            pairs.append(_make_pair(root, question, seed, present))
    return pairs


def pair_with_horizon(root: Path, plan: Plan, question: Question, side: str) -> list[SeedPair]:
    """For each run of a side that is longer than the horizon, pair all its groups with those within it."""
    pairs = []
    for seed in plan.seeds.seeds[: question.seeds]:
        run = _find_recorded(root, side, seed)
        if run is not None and (compared := question.horizon // run.group_size) < run.groups:
            lengths = (MetricReading(run.place, groups, question.metric) for groups in (run.groups, compared))
            pairs.append(SeedPair(seed, tuple(lengths)))
    return pairs


def _make_pair(root: Path, question: Question, seed: int, runs: Sequence[_RecordedSide]) -> SeedPair:
    wanted = [question.horizon // run.group_size for run in runs]
    groups = [min(count, run.groups) for count, run in zip(wanted, runs, strict=True)]
    remarks = [
        f"{run.place} has fewer groups" for run, a, b in zip(runs, wanted, groups, strict=True) if b < a
    ]
    counts, clock, places = True, question.clock, [run.place for run in runs]
    if len(runs) > 1 and (question.cuts_both or clock is not None):
        remarks = remarks[:1] if groups[0] < wanted[0] else []
        if question.cuts_both:
            groups, remark = _cut_both(root, places, groups, question)
        elif clock is not None:
            groups, remark = _cut_second(root, places, groups, clock)
        counts = min(groups) > 0
        remarks += [remark] if remark else []
    sides = (
        MetricReading(place, count, question.metric) for place, count in zip(places, groups, strict=True)
    )
    return SeedPair(seed, tuple(sides), "; ".join(remarks), counts)


def _cut_second(
    root: Path, places: Sequence[str], groups: Sequence[int], clock: Clock
) -> tuple[list[int], str]:
    """Return the groups of both runs, the second's within the first one's seconds, 0 for none (D61).

    The second value is a remark, empty where there is none.
    """
    first, second = (root / place for place in places[:2])
    comparable = seconds_beside(first, second, clock)
    if comparable.seconds is None:
        return [groups[0], 0], comparable.remark
    count = realized_groups(comparable.seconds, sum(loop_seconds(first, clock)[: groups[0]]))
    if count == len(comparable.seconds):
        return [groups[0], 0], f"{places[1]} ends before the time does"
    return [groups[0], count], comparable.remark


def _cut_both(
    root: Path, places: Sequence[str], groups: Sequence[int], question: Question
) -> tuple[list[int], str]:
    """Return the groups of both runs up to where the one ends that spent less, and a remark as above.

    They spend seconds of the question's clock or, without one, what its match counts.
    """
    first, second = (root / place for place in places[:2])
    remark, clock = "", question.clock
    if clock is None:
        spent: list[Sequence[float]] = [
            _spent(run, count, question.match) for run, count in zip((first, second), groups, strict=True)
        ]
    else:
        comparable = seconds_beside(first, second, clock)
        if comparable.seconds is None:
            return [0, 0], comparable.remark
        spent, remark = [loop_seconds(first, clock), comparable.seconds], comparable.remark
    totals = [list(accumulate(run[:count], initial=0)) for run, count in zip(spent, groups, strict=True)]
    least = min(run[-1] for run in totals)
    return [bisect_right(run, least) - 1 for run in totals], remark


class _Proposed(msgspec.Struct, frozen=True):
    """What counts programs and evaluator calls of a ``CompletionRecord``; the rest is not decoded."""

    step: int
    score: float | None
    program_sha256: str | None
    outcome: Outcome


def _spent(run: Path, groups: int, match: Match) -> list[int]:
    """New programs or evaluator calls of each group of a run, by what a match counts."""
    records = read_records(run / COMPLETIONS, _Proposed)
    if match == "fewest_programs":
        valid = ((record.step, record.program_sha256) for record in records if record.score is not None)
        return new_programs(valid, groups)
    calls = Counter(record.step for record in records if record.outcome.evaluated)
    return [calls[group] for group in range(groups)]


def compute_values(root: Path, readings: Iterable[MetricReading]) -> dict[MetricReading, float | None]:
    """Return the value of every reading, None where the metric is undefined.

    Raises ConfigError for an unknown metric, and as ``load_runs`` and ``checkpoint_answers`` do.
    """
    wanted_by_place: dict[str, set[tuple[int, str]]] = {}
    for reading in readings:
        known = PROBE_METRICS if _is_checkpoint(reading.place) else (*MEASURES,)
        if reading.metric not in known:
            raise ConfigError(
                f"the plan asks {reading.place} for {reading.metric!r}: choose one of {', '.join(known)}"
            )
        wanted_by_place.setdefault(reading.place, set()).add((reading.groups, reading.metric))
    shares = [(root, place, sorted(wanted)) for place, wanted in sorted(wanted_by_place.items())]
    return {
        reading: value for values in mapped(_read_values, shares, 16) for reading, value in values.items()
    }


def _read_values(share: tuple[Path, str, Sequence[tuple[int, str]]]) -> dict[MetricReading, float | None]:
    root, place, wanted = share
    if _is_checkpoint(place):
        name, manifest = (root / place).name, read_probe((root / place).parent)
        checkpoint = next(checkpoint for checkpoint in manifest.checkpoints if checkpoint.name == name)
        answers = checkpoint_answers((root / place).parent, manifest, checkpoint)
        valid = ratio(sum(answer.score is not None for answer in answers), len(answers))
        return {MetricReading(place, prompts, metric): valid for prompts, metric in wanted}
    (run,) = load_runs(root / place)
    parts = {groups: run.prefix(groups) for groups, _ in wanted}
    return {
        MetricReading(place, groups, metric): MEASURES[metric].of_run(parts[groups])
        for groups, metric in wanted
    }
