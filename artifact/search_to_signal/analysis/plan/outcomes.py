"""Plan and outcome, line by line: the estimate that was announced, its interval, and what it says.

Seeds are the unit. A verdict takes the interval at the level that the plan's correction leaves (D62). A
comparison that several questions ask for has one answer, that of the question with the most seeds. A study
that was closed before it had its seeds says so: it has no verdict, and gives none to others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from scipy.stats import binomtest
from scipy.stats import t as student

from search_to_signal.analysis.plan.power import smallest_effect
from search_to_signal.analysis.plan.readings import Pair, Reading, pairs_of, values_of
from search_to_signal.analysis.tables.paired import LEAST_SEEDS, percentile_interval
from search_to_signal.records.amendments import Amendment
from search_to_signal.records.plan import Plan, Question, Study
from search_to_signal.seeding import stream

Ends = tuple[float, float]
NOT_CLOSED: Mapping[str, Amendment] = {}


class Verdict(str, Enum):
    """What an outcome says; only a complete one says anything."""

    ABOVE = "above zero"
    BELOW = "below zero"
    OPEN = "undecided"
    DESCRIBED = "described"
    PARTIAL = "partial: no verdict"
    MISSING = "not recorded"
    CLOSED = "closed: no verdict"
    DROPPED = "closed before it was recorded"


_CLOSED = {Verdict.PARTIAL: Verdict.CLOSED, Verdict.MISSING: Verdict.DROPPED}


@dataclass(frozen=True)
class Outcome:
    """One pair of one question. ``values`` are its differences by seed, or the metric where it has one side.

    ``levels`` are the means of each side over these seeds, empty without any.
    ``interval`` is at the plan's level, ``corrected`` at that of the verdict; None where the plan asks for
    none or there are too few seeds. ``source`` is the question whose answer this is: the one that asks for
    the same comparison over the most seeds. ``smallest_effect`` is what the plan said that it could see,
    ``recorded_effect`` the same by the deviation that was recorded. ``closed`` is the amendment that ended
    the recording of the source's study, if one did.
    """

    study: Study
    question: Question
    sides: tuple[str, ...]
    pairs: tuple[Pair, ...]
    values: Mapping[int, float]
    levels: tuple[float, ...]
    interval: Ends | None
    corrected: Ends | None
    verdict: Verdict
    source: Question
    smallest_effect: float | None = None
    recorded_effect: float | None = None
    closed: Amendment | None = None

    @property
    def name(self) -> str:
        """What is compared, unlike any other comparison of its question."""
        return self._folder() + " minus ".join(_short_names(self.sides))

    @property
    def base(self) -> str:
        """The second side, or the only one, as the name says it."""
        return self._folder() + _short_names(self.sides)[-1]

    @property
    def planned(self) -> int:
        """How many seeds the plan asks for, of all questions the one with the most."""
        return self.source.seeds

    @property
    def borrowed(self) -> bool:
        """Whether another question of the plan gives the answer."""
        return self.source.key != self.question.key

    @property
    def waits(self) -> bool:
        """Whether seeds are missing that are still to come."""
        return self.verdict in _CLOSED

    @property
    def short(self) -> bool:
        """Whether its study was closed before it had its seeds."""
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
        """Of the folders that both sides share, those in which the question's comparisons differ."""
        shared = [_shared(sides) for sides in self.question.pairs]
        places = enumerate(_shared(self.sides))
        told = "/".join(part for n, part in places if len({tuple(parts[n : n + 1]) for parts in shared}) > 1)
        return f"{told}: " if told else ""

    @property
    def above(self) -> int:
        """Seeds with a positive value."""
        return sum(value > 0.0 for value in self.values.values())

    @property
    def below(self) -> int:
        """Seeds with a negative value."""
        return sum(value < 0.0 for value in self.values.values())


def _shared(sides: Sequence[str]) -> list[str]:
    """The folders that all sides have in common, from the first on; of one side all of its."""
    folders = (side.split("/")[:-1] for side in sides)
    return [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))]


def _short_names(sides: Sequence[str]) -> list[str]:
    """Sides without the folders that they share."""
    shared = len(_shared(sides))
    return ["/".join(side.split("/")[shared:]) for side in sides]


def outcomes(root: Path, plan: Plan, closed: Mapping[str, Amendment] = NOT_CLOSED) -> list[Outcome]:
    """What came out, in the plan's order; ``root`` holds the recorded evidence, PROFILE/LAYER/RUN.

    ``closed`` are the amendments that closed studies, by study. Raises RunDirectoryError for a run that is
    short or changed.
    """
    lines = [
        (study, question, sides, number, pairs_of(root, plan, question, sides))
        for study in plan.studies
        for question in study.questions
        for number, sides in enumerate(question.pairs)
    ]
    found = values_of(
        root, (side for *_, pairs in lines for pair in pairs if pair.counts for side in pair.sides)
    )
    return _agreed([_amended(_outcome(plan, *line, found), closed.get(line[0].key)) for line in lines])


def _amended(one: Outcome, closed: Amendment | None) -> Outcome:
    """An outcome of a closed study: what it lacks is waited for no longer."""
    verdict = _CLOSED.get(one.verdict, one.verdict) if closed else one.verdict
    return replace(one, verdict=verdict, closed=closed)


def _agreed(found: Sequence[Outcome]) -> list[Outcome]:
    """Each with the answer of the question that asks for the same comparison over the most seeds.

    What was closed short keeps its own.
    """
    widest: dict[tuple[object, ...], Outcome] = {}
    for one in found:
        key = _comparison(one)
        if one.short:
            continue
        if key not in widest or one.question.seeds > widest[key].question.seeds:
            widest[key] = one
    return [
        one if one.short else replace(widest[_comparison(one)], study=one.study, question=one.question)
        for one in found
    ]


def _comparison(one: Outcome) -> tuple[object, ...]:
    """What makes two lines of the plan one comparison, over however many seeds."""
    asked = one.question
    return one.sides, asked.metric, asked.estimator, asked.match, asked.horizon


def _outcome(
    plan: Plan,
    study: Study,
    question: Question,
    sides: tuple[str, ...],
    number: int,
    pairs: Sequence[Pair],
    found: Mapping[Reading, float | None],
) -> Outcome:
    known = {}
    for pair in pairs:
        if not pair.counts:
            continue
        numbers = [found[side] for side in pair.sides]
        present = [value for value in numbers if value is not None]
        if len(present) == len(numbers):
            known[pair.seed] = present
    values = {seed: side[0] - side[1] if len(side) > 1 else side[0] for seed, side in known.items()}
    levels = tuple(map(mean, zip(*known.values(), strict=True)))
    level = plan.analysis.level
    strict = 1.0 - (1.0 - level) / question.comparisons
    interval, corrected = (_interval(question, list(values.values()), one) for one in (level, strict))
    effects = (
        question.smallest_effects[number] if number < len(question.smallest_effects) else None,
        _recorded_effect(plan, question, list(values.values()), 1.0 - strict),
    )
    verdict = _verdict(question, values, corrected, 1.0 - strict)
    ends = (interval, corrected)
    return Outcome(study, question, sides, tuple(pairs), values, levels, *ends, verdict, question, *effects)


def _recorded_effect(plan: Plan, question: Question, values: Sequence[float], error: float) -> float | None:
    """What a test over the planned seeds sees with the plan's power, by the recorded deviation."""
    if question.estimator != "mean_difference" or len(question.pairs[0]) < 2 or len(values) < 2:
        return None
    deviation = stdev(values)
    return smallest_effect(deviation, question.seeds, error, plan.analysis.power) if deviation else None


def _interval(question: Question, values: Sequence[float], level: float) -> Ends | None:
    if question.interval == "none" or len(values) < 2:
        return None
    if question.interval == "bootstrap":
        if len(values) < LEAST_SEEDS:
            return None
        return percentile_interval(values, stream(0, "bootstrap", "plan", question.key), level)
    half = float(student.ppf((1.0 + level) / 2.0, len(values) - 1)) * stdev(values) / np.sqrt(len(values))
    return mean(values) - float(half), mean(values) + float(half)


def _verdict(question: Question, values: Mapping[int, float], ends: Ends | None, error: float) -> Verdict:
    if not values:
        return Verdict.MISSING
    if len(values) < question.seeds:
        return Verdict.PARTIAL
    if question.estimator == "description" or len(question.pairs[0]) < 2:
        return Verdict.DESCRIBED
    if question.estimator == "sign_count":
        above, below = (sum(sign * value > 0.0 for value in values.values()) for sign in (1, -1))
        decided = above + below > 0 and binomtest(above, above + below).pvalue <= error
        return (Verdict.ABOVE if above > below else Verdict.BELOW) if decided else Verdict.OPEN
    if ends is None or ends[0] <= 0.0 <= ends[1]:
        return Verdict.OPEN
    return Verdict.ABOVE if ends[0] > 0.0 else Verdict.BELOW
