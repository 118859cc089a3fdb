"""Exploratory analyses: questions about the plan's runs that the plan itself does not ask.

Where the plan asks whether proposals narrow, questions are added: how many completions copy a parent, how
many score as a parent by other code, how many are valid and no copy, how many admitted heuristics are a
parent with other numbers, of each condition too, how many of a run have a form and a score that are new to
it, how large the gain in score is when each program counts once and in the median, and how validity splits
into usable functions and valid ones among these. Where it asks for groups without any
advantage, frozen runs are asked with the others, all by Factorized's rewards, and how many of these groups
are valid. Where a primary question compares final bests of as many completions, it is asked again of as many
evaluator calls, as many programs and as much time.
Where a run is longer than the runs it is compared with, its gain after their horizon is computed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from msgspec.structs import replace

from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.plan import Match, Plan, Question, Study
from search_to_signal.report.tables.measures import (
    COPIED_SCORES,
    COPIES,
    EACH_ONCE,
    FINAL_BEST,
    FLAT,
    FLAT_VALID,
    MEDIAN,
    NEW_FORMS,
    NOT_COPIED,
    PROGRAMS,
    RETUNED,
    USABLE,
    VALID_OF_USABLE,
    ZERO,
    Measure,
)
from search_to_signal.study.metric_values import MetricReading, SeedPair, compute_values, pair_with_horizon
from search_to_signal.study.verdicts import QuestionOutcome

_EQUAL_EFFORT: dict[Match, str] = {
    "fewest_calls": "called the evaluator less often ends, the paper's match?",
    "fewest_programs": "proposed fewer distinct valid programs ends, of which training makes more or fewer?",
    "least_processor_time": "took fewer processor seconds ends, by seeds whose times compare?",
    "least_wall_time": "took fewer wall seconds ends, by seeds whose times compare?",
}
_EXPLORATORY_QUESTIONS = {
    COPIES: "How many of the valid completions copy a parent?",
    COPIED_SCORES: "And how many are no copy by code, but score as a parent that was shown?",
    NOT_COPIED: "How many completions are valid and copy no parent?",
    RETUNED: "How many of the admitted heuristics are a parent with other numbers?",
    NEW_FORMS: "How many heuristics of a run have a form and a score that are new to it, numbers aside?",
    EACH_ONCE: "What is the difference in score where each program counts once?",
    MEDIAN: "And in the median score, beside the mean?",
    USABLE: "How many completions have rationale, code and the function that is asked for?",
    VALID_OF_USABLE: "And how many of these are valid?",
}
_OF_FLAT_GROUPS = {
    FLAT: "In how many groups would Factorized leave no advantage, whoever proposed them?",
    FLAT_VALID: "In how many of these are all completions valid, and none better than another?",
}


def add_exploratory_questions(plan: Plan) -> Plan:
    """Return the plan with the exploratory questions appended to each study's own."""
    studies = (
        replace(study, questions=(*study.questions, *_exploratory_questions(study))) for study in plan.studies
    )
    return replace(plan, studies=tuple(studies))


def _exploratory_questions(study: Study) -> Iterator[Question]:
    for question in study.questions:
        if question.metric == PROGRAMS.field and question.estimator == "mean_difference":
            for metric, asks in _EXPLORATORY_QUESTIONS.items():
                key = f"{question.key}+{metric.field}"
                yield replace(question, key=key, metric=metric.field, asks=asks, smallest_effects=())
            yield _described(question, RETUNED, "And how many of each condition's?")
        if _asks_for_best(question):
            for match, ends in _EQUAL_EFFORT.items():
                yield replace(
                    question,
                    key=f"{question.key}+{match}",
                    match=match,
                    asks=f"And where both runs are cut where the one that {ends}",
                    smallest_effects=(),
                    published=(),
                )
        if question.metric == ZERO.field and question.estimator == "description":
            for metric, asks in _OF_FLAT_GROUPS.items():
                yield replace(
                    question,
                    key=f"{question.key}+{metric.field}",
                    metric=metric.field,
                    asks=asks,
                    pairs=tuple((side,) for side in _with_frozen(question)),
                    published=(),
                    counts_against="as large a share of frozen runs, of groups that are as often valid",
                )


def _described(question: Question, metric: Measure, asks: str) -> Question:
    """Describe a metric on each side of a comparison."""
    sides = dict.fromkeys(side for pair in question.pairs for side in pair[::-1])
    return replace(
        question,
        key=f"{question.key}+{metric.field}+described",
        metric=metric.field,
        asks=asks,
        estimator="description",
        pairs=tuple((side,) for side in sides),
        smallest_effects=(),
    )


def _asks_for_best(question: Question) -> bool:
    """Whether a primary question compares mean final bests of as many completions."""
    best = question.role == "primary" and question.metric == FINAL_BEST.field
    return best and question.estimator == "mean_difference" and question.match == "completions"


def _with_frozen(question: Question) -> list[str]:
    """The sides of a description, after the frozen runs of their cohorts."""
    sides = [side for pair in question.pairs for side in pair]
    frozen = [f"{side.rpartition('/')[0]}/{FROZEN}" for side in sides]
    return list(dict.fromkeys((*frozen, *sides)))


def split_exploratory(
    plan: Plan, outcomes: Sequence[QuestionOutcome]
) -> tuple[list[QuestionOutcome], list[QuestionOutcome]]:
    """Split outcomes into those of planned questions and those of exploratory ones."""
    keys = {question.key for study in plan.studies for question in study.questions}
    planned = [outcome for outcome in outcomes if outcome.question.key in keys]
    return planned, [outcome for outcome in outcomes if outcome.question.key not in keys]


@dataclass(frozen=True)
class ContinuedRuns:
    """Runs of one side that continued after the ``groups`` groups that ``question`` compares.

    ``further`` (number of later groups) and ``gains`` (in the metric, over these groups) are by seed;
    ``files`` are the records that they were computed from.
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
        """Whether a question compares the same metric and horizon with runs of the same condition."""
        same_metric = (question.metric, question.horizon) == (self.question.metric, self.question.horizon)
        return same_metric and any(
            _profile_and_condition(pair[-1]) == _profile_and_condition(self.side) for pair in question.pairs
        )


def _profile_and_condition(side: str) -> tuple[str, str]:
    """Return profile and condition of PROFILE/LAYER/CONDITION."""
    profile, _, rest = side.partition("/")
    return profile, rest.rpartition("/")[2]


def read_continued_runs(root: Path, plan: Plan) -> list[ContinuedRuns]:
    """Return the runs that continued after the horizon, by side, where the plan compares at equal time (D61).

    Raises as ``compute_values`` does.
    """
    questions = [question for study in plan.studies for question in study.questions]
    timed_questions = [
        question
        for question in questions
        if question.clock is not None and question.estimator == "mean_difference"
    ]
    sides = {pair[-1]: question for question in timed_questions for pair in question.pairs}
    longer = {side: pair_with_horizon(root, plan, question, side) for side, question in sides.items()}
    readings = (reading for pairs in longer.values() for pair in pairs for reading in pair.sides)
    values = compute_values(root, readings)
    continued = [
        _gains_beyond_horizon(sides[side], side, pairs, values) for side, pairs in longer.items() if pairs
    ]
    return [runs for runs in continued if runs.gains]


def _gains_beyond_horizon(
    question: Question, side: str, pairs: Sequence[SeedPair], values: Mapping[MetricReading, float | None]
) -> ContinuedRuns:
    further, gains = {}, {}
    for pair in pairs:
        whole, part = (values[reading] for reading in pair.sides)
        if whole is not None and part is not None:
            further[pair.seed] = pair.sides[0].groups - pair.sides[1].groups
            gains[pair.seed] = whole - part
    files = tuple(pair.sides[0].file for pair in pairs if pair.seed in gains)
    return ContinuedRuns(question, side, pairs[0].sides[1].groups, further, gains, files)
