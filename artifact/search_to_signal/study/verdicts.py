"""Outcomes of the plan's questions: the planned estimate, its interval and its verdict.

Seeds are the statistical unit. A verdict uses the interval at the level that remains after the plan's
Bonferroni correction (D62). A comparison that several questions ask for has one answer: that of the question
with the most seeds. A study that was closed before it had all its seeds has no verdict and gives none to
other questions.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate, takewhile
from pathlib import Path, PurePosixPath
from statistics import mean, stdev
from typing import TypeVar

import msgspec
import numpy as np
from scipy.optimize import brentq
from scipy.stats import binomtest, nct
from scipy.stats import t as student

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.processes import mapped
from search_to_signal.base.seeding import stream
from search_to_signal.layers.probe.tables import checkpoint_answers
from search_to_signal.records.amendments import Amendment
from search_to_signal.records.anchor import Clock, loop_seconds, realized_groups, seconds_beside
from search_to_signal.records.conditions import run_name
from search_to_signal.records.layers import PROBE
from search_to_signal.records.manifest import finished_manifest
from search_to_signal.records.plan import Match, Plan, Question, Study
from search_to_signal.records.probe import INITIAL, PROBE_MANIFEST, read_probe
from search_to_signal.records.reader import COMPLETIONS, read_records
from search_to_signal.records.schema import Outcome
from search_to_signal.report.metrics.search import new_programs, ratio
from search_to_signal.report.results import load_runs
from search_to_signal.report.tables.core import LEAST_SEEDS, percentile_interval
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


Bounds = tuple[float, float]
Name = TypeVar("Name", bound=Hashable)
NO_CLOSED_STUDIES: Mapping[str, Amendment] = {}


class OutcomeVerdict(str, Enum):
    """The verdict of a question; only questions with all their seeds are decided."""

    ABOVE = "above zero"
    BELOW = "below zero"
    OPEN = "undecided"
    DESCRIBED = "described"
    PARTIAL = "partial: no verdict"
    MISSING = "not packed"
    CLOSED = "closed: no verdict"
    DROPPED = "closed before it was recorded"


_CLOSED = {OutcomeVerdict.PARTIAL: OutcomeVerdict.CLOSED, OutcomeVerdict.MISSING: OutcomeVerdict.DROPPED}


@dataclass(frozen=True)
class QuestionOutcome:
    """The outcome of one comparison (pair of sides) of one question.

    ``values`` are the differences first minus second by seed, or the metric itself where there is one side.
    ``levels`` are the means of each side over these seeds; empty without seeds. ``interval`` is at the plan's
    level, ``corrected`` at the verdict's level; None where the plan asks for none or there are too few seeds.
    ``source`` is the question whose answer this is: of those with the same comparison the one with the most
    seeds. ``smallest_effect`` is the smallest effect that the plan expected to detect, ``recorded_effect``
    the same with the recorded deviation. ``closed`` is the amendment that ended the recording of the
    source's study, if there is one.
    """

    study: Study
    question: Question
    sides: tuple[str, ...]
    pairs: tuple[SeedPair, ...]
    values: Mapping[int, float]
    levels: tuple[float, ...]
    interval: Bounds | None
    corrected: Bounds | None
    verdict: OutcomeVerdict
    source: Question
    smallest_effect: float | None = None
    recorded_effect: float | None = None
    closed: Amendment | None = None

    @property
    def name(self) -> str:
        """The name of the comparison, unique within its question."""
        return self._folder() + " minus ".join(_short_names(self.sides))

    @property
    def profile(self) -> str:
        """The profile of all sides, by which a figure tells equal names apart; empty where they differ."""
        return next(iter(_shared(self.sides)), "")

    @property
    def base(self) -> str:
        """The name of the second side, or of the only one."""
        return self._folder() + _short_names(self.sides)[-1]

    @property
    def planned(self) -> int:
        """The planned number of seeds: the most that a question asks for this comparison."""
        return self.source.seeds

    @property
    def answered_elsewhere(self) -> bool:
        """Whether another question of the plan gives the answer to this one."""
        return self.source.key != self.question.key

    @property
    def pending(self) -> bool:
        """Whether seeds are missing and still to be recorded."""
        return self.verdict in _CLOSED

    @property
    def closed_short(self) -> bool:
        """Whether the study was closed before all its seeds were recorded."""
        return self.verdict in _CLOSED.values()

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return mean(self.values.values()) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Sample deviation over seeds."""
        return stdev(self.values.values()) if len(self.values) > 1 else None

    def _folder(self) -> str:
        """The shared folders of both sides that differ between the question's comparisons, as a prefix."""
        shared = [_shared(sides) for sides in self.question.pairs]
        places = enumerate(_shared(self.sides))
        differing = "/".join(
            part for n, part in places if len({tuple(parts[n : n + 1]) for parts in shared}) > 1
        )
        return f"{differing}: " if differing else ""

    @property
    def above(self) -> int:
        """Seeds with a positive value."""
        return sum(value > 0.0 for value in self.values.values())

    @property
    def below(self) -> int:
        """Seeds with a negative value."""
        return sum(value < 0.0 for value in self.values.values())


def _shared(sides: Sequence[str]) -> list[str]:
    folders = (side.split("/")[:-1] for side in sides)
    return [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))]


def _short_names(sides: Sequence[str]) -> list[str]:
    shared = len(_shared(sides))
    return ["/".join(side.split("/")[shared:]) for side in sides]


def compute_outcomes(
    root: Path, plan: Plan, closed: Mapping[str, Amendment] = NO_CLOSED_STUDIES
) -> list[QuestionOutcome]:
    """Return the outcome of every comparison, in the plan's order.

    Args: ``root`` is the directory of the recorded evidence (PROFILE/LAYER/RUN), ``closed`` the amendments
    that closed studies, by study. Raises RunDirectoryError for a run that is incomplete or changed.
    """
    lines = [
        (study, question, sides, number, pair_runs(root, plan, question, sides))
        for study in plan.studies
        for question in study.questions
        for number, sides in enumerate(question.pairs)
    ]
    values = compute_values(
        root, (side for *_, pairs in lines for pair in pairs if pair.counts for side in pair.sides)
    )
    outcomes = []
    for line in lines:
        outcome, amendment = _outcome(plan, *line, values), closed.get(line[0].key)
        # The missing seeds of a closed study are no longer expected.
        verdict = _CLOSED.get(outcome.verdict, outcome.verdict) if amendment else outcome.verdict
        outcomes.append(replace(outcome, verdict=verdict, closed=amendment))
    # Of one comparison every question has the answer of the one with the most seeds, but for those that
    # were closed short: these keep their own.
    widest: dict[tuple[object, ...], QuestionOutcome] = {}
    for outcome in outcomes:
        key = _comparison(outcome)
        if not outcome.closed_short and (
            key not in widest or outcome.question.seeds > widest[key].question.seeds
        ):
            widest[key] = outcome
    return [
        outcome
        if outcome.closed_short
        else replace(widest[_comparison(outcome)], study=outcome.study, question=outcome.question)
        for outcome in outcomes
    ]


def _comparison(outcome: QuestionOutcome) -> tuple[object, ...]:
    question = outcome.question
    return outcome.sides, question.metric, question.estimator, question.match, question.horizon


def _outcome(
    plan: Plan,
    study: Study,
    question: Question,
    sides: tuple[str, ...],
    number: int,
    pairs: Sequence[SeedPair],
    readings: Mapping[MetricReading, float | None],
) -> QuestionOutcome:
    known = {}
    for pair in pairs:
        if not pair.counts:
            continue
        numbers = [readings[side] for side in pair.sides]
        present = [value for value in numbers if value is not None]
        if len(present) == len(numbers):
            known[pair.seed] = present
    values = {seed: side[0] - side[1] if len(side) > 1 else side[0] for seed, side in known.items()}
    levels = tuple(map(mean, zip(*known.values(), strict=True)))
    level = plan.analysis.level
    strict = 1.0 - (1.0 - level) / question.comparisons
    interval, corrected = (_interval(question, list(values.values()), at) for at in (level, strict))
    planned = question.smallest_effects[number] if number < len(question.smallest_effects) else None
    compared = question.estimator == "mean_difference" and len(question.pairs[0]) > 1 and len(values) > 1
    deviation, recorded = stdev(values.values()) if compared else 0.0, None
    if deviation:  # What the planned seeds detect by it.
        recorded = smallest_effect(deviation, question.seeds, 1.0 - strict, plan.analysis.power)
    verdict = _verdict(question, values, corrected, 1.0 - strict)
    ends = (interval, corrected)
    return QuestionOutcome(
        study, question, sides, tuple(pairs), values, levels, *ends, verdict, question, planned, recorded
    )


def _interval(question: Question, values: Sequence[float], level: float) -> Bounds | None:
    bootstrap = question.interval == "bootstrap"
    if question.interval == "none" or len(values) < (LEAST_SEEDS if bootstrap else 2):
        return None
    if bootstrap:
        return percentile_interval(values, stream(0, "bootstrap", "plan", question.key), level)
    return t_interval(values, level)


def shared_by_profiles(
    outcomes: Iterable[QuestionOutcome], name: Callable[[QuestionOutcome], Name]
) -> set[Name]:
    """Return the names that recorded comparisons of several profiles have in common."""
    profiles: dict[Name, set[str]] = {}
    for outcome in outcomes:
        if outcome.values:
            profiles.setdefault(name(outcome), set()).add(outcome.profile)
    return {shared for shared, found in profiles.items() if len(found) > 1}


def t_interval(values: Sequence[float], level: float) -> Bounds:
    """Return Student's interval of the mean of two values or more."""
    half = float(student.ppf((1.0 + level) / 2.0, len(values) - 1)) * stdev(values) / np.sqrt(len(values))
    return mean(values) - float(half), mean(values) + float(half)


def _verdict(
    question: Question, values: Mapping[int, float], ends: Bounds | None, error: float
) -> OutcomeVerdict:
    if not values:
        return OutcomeVerdict.MISSING
    if len(values) < question.seeds:
        return OutcomeVerdict.PARTIAL
    if question.estimator == "description" or len(question.pairs[0]) < 2:
        return OutcomeVerdict.DESCRIBED
    if question.estimator == "sign_count":
        above, below = (sum(sign * value > 0.0 for value in values.values()) for sign in (1, -1))
        if not above + below or binomtest(above, above + below).pvalue > error:
            return OutcomeVerdict.OPEN
        return OutcomeVerdict.ABOVE if above > below else OutcomeVerdict.BELOW
    if ends is None or ends[0] <= 0.0 <= ends[1]:
        return OutcomeVerdict.OPEN
    return OutcomeVerdict.ABOVE if ends[0] > 0.0 else OutcomeVerdict.BELOW


def power(effect: float, deviation: float, seeds: int, alpha: float) -> float:
    """Return the probability that a paired t test over ``seeds`` detects a true mean difference."""
    freedom, shift = seeds - 1, effect * math.sqrt(seeds) / deviation
    edge = student.ppf(1 - alpha / 2, freedom)
    # Far from zero the other tail vanishes, and scipy returns NaN for it.
    return float(nct.sf(edge, freedom, shift) + np.nan_to_num(nct.cdf(-edge, freedom, shift)))


def smallest_effect(deviation: float, seeds: int, alpha: float, wanted: float) -> float:
    """Return the smallest mean difference that the test detects with the wanted power.

    Its unit is that of ``deviation``. Two-sided over seeds: the smallest d with P(|T| > t*) = power, T
    noncentral t with n - 1 degrees of freedom and noncentrality d sqrt(n) / s, s the deviation of the
    difference over seeds.
    """

    def missing(size: float) -> float:
        return power(size * deviation, deviation, seeds, alpha) - wanted

    most = 5.0
    while missing(most) < 0.0:
        most *= 2.0
    return deviation * float(brentq(missing, 1e-6, most))
