"""What is asked besides the plan, of the runs that it has: exploratory, and told beside what it bears on.

Where the plan asks whether proposals narrow: how many of them copy a parent, and what is left of the gain in
score when each program counts once. Where a longer run stands beside others: what it found after them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from msgspec.structs import replace

from search_to_signal.analysis.plan.outcomes import Outcome
from search_to_signal.analysis.plan.readings import (
    COPIES,
    EACH_ONCE,
    PROGRAMS,
    Pair,
    Reading,
    beyond,
    values_of,
)
from search_to_signal.records.plan import Plan, Question, Study

_ASKED = {
    COPIES: "How many of the valid completions copy a parent?",
    EACH_ONCE: "What is the difference in score where each program counts once?",
}


def with_besides(plan: Plan) -> Plan:
    """The plan, each study with what is asked besides behind its own questions."""
    studies = (replace(study, questions=(*study.questions, *_besides(study))) for study in plan.studies)
    return replace(plan, studies=tuple(studies))


def _besides(study: Study) -> Iterator[Question]:
    for question in study.questions:
        if question.metric == PROGRAMS and question.estimator == "mean_difference":
            for metric, asks in _ASKED.items():
                key = f"{question.key}+{metric}"
                yield replace(question, key=key, metric=metric, asks=asks, smallest_effects=())


def parted(plan: Plan, found: Sequence[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    """What the plan asks for, and what is asked besides."""
    keys = {question.key for study in plan.studies for question in study.questions}
    own = [one for one in found if one.question.key in keys]
    return own, [one for one in found if one.question.key not in keys]


@dataclass(frozen=True)
class Continued:
    """What the runs of a side still found after the ``groups`` groups that ``question`` compares.

    ``gains`` and ``further`` groups are by seed, ``files`` what they were read from.
    """

    question: Question
    side: str
    groups: int
    further: Mapping[int, int]
    gains: Mapping[int, float]
    files: tuple[str, ...]

    @property
    def mean(self) -> float:
        """The mean gain over seeds."""
        return mean(self.gains.values())

    def bears_on(self, question: Question) -> bool:
        """Whether a question compares the same metric, over as much, with runs of the same condition."""
        same = (question.metric, question.horizon) == (self.question.metric, self.question.horizon)
        return same and any(_kind(pair[-1]) == _kind(self.side) for pair in question.pairs)


def _kind(side: str) -> tuple[str, str]:
    """Profile and condition of PROFILE/LAYER/CONDITION."""
    profile, _, rest = side.partition("/")
    return profile, rest.rpartition("/")[2]


def continued(root: Path, plan: Plan) -> list[Continued]:
    """Every side that the plan holds shorter runs to by their time, as far as its runs went on (D61)."""
    asked = [question for study in plan.studies for question in study.questions]
    timed = [one for one in asked if one.clock is not None and one.estimator == "mean_difference"]
    sides = {pair[-1]: question for question in timed for pair in question.pairs}
    longer = {side: beyond(root, plan, question, side) for side, question in sides.items()}
    found = values_of(root, (one for pairs in longer.values() for pair in pairs for one in pair.sides))
    told = (_continued(sides[side], side, pairs, found) for side, pairs in longer.items() if pairs)
    return [one for one in told if one.gains]


def _continued(
    question: Question, side: str, pairs: Sequence[Pair], found: Mapping[Reading, float | None]
) -> Continued:
    further, gains = {}, {}
    for pair in pairs:
        whole, part = (found[reading] for reading in pair.sides)
        if whole is not None and part is not None:
            further[pair.seed] = pair.sides[0].groups - pair.sides[1].groups
            gains[pair.seed] = whole - part
    files = tuple(pair.sides[0].file for pair in pairs if pair.seed in gains)
    return Continued(question, side, pairs[0].sides[1].groups, further, gains, files)
