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
from search_to_signal.report.tables import measures
from search_to_signal.study.metric_values import compute_values, pair_with_horizon
from search_to_signal.study.verdicts import QuestionOutcome

_EQUAL_EFFORT: dict[Match, str] = {
    "fewest_calls": "equally many evaluator calls (the paper's match)",
    "fewest_programs": "equally many distinct valid programs (how many there are is an effect of training)",
    "least_processor_time": "equal processor seconds, in the seeds whose times compare",
    "least_wall_time": "equal wall seconds, in the seeds whose times compare",
}
_EXPLORATORY_QUESTIONS = {
    measures.COPIES: "How many of the valid completions copy a parent?",
    measures.COPIED_SCORES: "And how many have other code than every parent shown, but the score of one?",
    measures.NOT_COPIED: "How many completions are valid and copy no parent?",
    measures.RETUNED: "How many of the admitted heuristics are a parent with other numbers?",
    measures.NEW_FORMS: (
        "How many heuristics of a run have a new score, and a form that is new even without its numbers?"
    ),
    measures.EACH_ONCE: "What is the difference in score if each program counts once?",
    measures.MEDIAN: "And in the median score instead of the mean?",
    measures.USABLE: "How many completions have rationale, code and the function that is asked for?",
    measures.VALID_OF_USABLE: "And how many of these are valid?",
}
_OF_FLAT_GROUPS = {
    measures.FLAT: "In how many of each condition's groups would Factorized give no advantage?",
    measures.FLAT_VALID: "In how many of these are all completions valid with equal rewards?",
}


def add_exploratory_questions(plan: Plan) -> Plan:
    """Return the plan with the exploratory questions appended to each study's own."""
    studies = (
        replace(study, questions=(*study.questions, *_exploratory_questions(study))) for study in plan.studies
    )
    return replace(plan, studies=tuple(studies))


def _exploratory_questions(study: Study) -> Iterator[Question]:
    for question in study.questions:
        if question.metric == measures.PROGRAMS.field and question.estimator == "mean_difference":
            for metric, asks in _EXPLORATORY_QUESTIONS.items():
                key = f"{question.key}+{metric.field}"
                yield replace(question, key=key, metric=metric.field, asks=asks, smallest_effects=())
            sides = dict.fromkeys(side for pair in question.pairs for side in pair[::-1])
            yield replace(
                question,
                key=f"{question.key}+{measures.RETUNED.field}+described",
                metric=measures.RETUNED.field,
                asks="And how many of each condition's?",
                estimator="description",
                pairs=tuple((side,) for side in sides),
                smallest_effects=(),
            )
        best = question.role == "primary" and question.metric == measures.FINAL_BEST.field
        if best and question.estimator == "mean_difference" and question.match == "completions":
            for match, effort in _EQUAL_EFFORT.items():
                yield replace(
                    question,
                    key=f"{question.key}+{match}",
                    match=match,
                    asks=f"And after {effort}?",
                    smallest_effects=(),
                    published=(),
                )
        if question.metric == measures.ZERO.field and question.estimator == "description":
            sides = dict.fromkeys(side for pair in question.pairs for side in pair)
            frozen = dict.fromkeys(f"{side.rpartition('/')[0]}/{FROZEN}" for side in sides)
            for metric, asks in _OF_FLAT_GROUPS.items():
                yield replace(
                    question,
                    key=f"{question.key}+{metric.field}",
                    metric=metric.field,
                    asks=asks,
                    pairs=tuple((side,) for side in {**frozen, **sides}),
                    published=(),
                    counts_against="as large a share in frozen runs, in groups that are as often valid",
                )


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
        if (question.metric, question.horizon) != (self.question.metric, self.question.horizon):
            return False
        # Profile and condition of PROFILE/LAYER/CONDITION.
        sides = (side.split("/") for side in (self.side, *(pair[-1] for pair in question.pairs)))
        own, *others = [(parts[0], parts[-1]) for parts in sides]
        return own in others


def read_continued_runs(root: Path, plan: Plan) -> list[ContinuedRuns]:
    """Return the runs that continued after the horizon, by side, where the plan compares at equal time (D61).

    Raises as ``compute_values`` does.
    """
    questions = [question for study in plan.studies for question in study.questions]
    timed = [one for one in questions if one.clock is not None and one.estimator == "mean_difference"]
    sides = {pair[-1]: question for question in timed for pair in question.pairs}
    longer = {side: pair_with_horizon(root, plan, question, side) for side, question in sides.items()}
    readings = (reading for pairs in longer.values() for pair in pairs for reading in pair.sides)
    values = compute_values(root, readings)
    continued = []
    for side, pairs in longer.items():
        further, gains, files = dict[int, int](), dict[int, float](), list[str]()
        for pair in pairs:
            whole, part = (values[reading] for reading in pair.sides)
            if whole is not None and part is not None:
                further[pair.seed] = pair.sides[0].groups - pair.sides[1].groups
                gains[pair.seed] = whole - part
                files.append(pair.sides[0].file)
        if gains:
            groups = pairs[0].sides[1].groups
            continued.append(ContinuedRuns(sides[side], side, groups, further, gains, tuple(files)))
    return continued
