"""Outcomes grouped by verdict, a few lines each; every comparison appears once.

Exploratory outcomes and the later gains of longer runs are listed with them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from msgspec.structs import replace

from search_to_signal.base.progress import counted, span
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.plan import Match, Plan, Question, Study
from search_to_signal.report.results import Origin
from search_to_signal.report.tables import measures
from search_to_signal.report.tables.cells import Cell, Line, Table, table_of
from search_to_signal.report.tables.measures import MEASURES
from search_to_signal.study.formatting import format_interval, format_value, metric_heading
from search_to_signal.study.verdicts import (
    OutcomeVerdict,
    QuestionOutcome,
    compute_values,
    pair_with_horizon,
    shared_by_profiles,
)

# Exploratory analyses: questions about the plan's runs that the plan itself does not ask.
#
# Where the plan asks whether proposals narrow, questions are added: how many completions copy a parent, how
# many score as a parent by other code, how many are valid and no copy, how many admitted heuristics are a
# parent with other numbers, of each condition too, how many of a run have a form and a score that are new to
# it, how large the gain in score is when each program counts once and in the median, and how validity splits
# into usable functions and valid ones among these. Where it asks for groups without any advantage, frozen
# runs are asked with the others, all by Factorized's rewards, and how many of these groups are valid. Where a
# primary question compares final bests of as many completions, it is asked again of as many evaluator calls,
# as many programs and as much time. Where a run is longer than the runs it is compared with, its gain after
# their horizon is computed.

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


TITLES = {
    OutcomeVerdict.ABOVE: "Decided, above zero",
    OutcomeVerdict.BELOW: "Decided, below zero",
    OutcomeVerdict.OPEN: "Undecided",
    OutcomeVerdict.CLOSED: "Undecided, closed before all seeds were recorded",
}
DESCRIBED = "Described, where the paper has the same"
ASKED_BESIDES = "Asked in addition to the plan, exploratory"


@dataclass(frozen=True)
class VerdictLines:
    """A verdict and the outcomes that have it: a line per study, metric and second side."""

    title: str
    lines: tuple[str, ...]


def group_by_verdict(
    outcomes: Sequence[QuestionOutcome],
    exploratory: Sequence[QuestionOutcome] = (),
    longer: Sequence[ContinuedRuns] = (),
) -> list[VerdictLines]:
    """Return above, below, undecided, closed, what is described beside the paper, and exploratory outcomes.

    Empty ones are left out.
    """
    comparisons = list(_distinct_comparisons(outcomes))
    shared = shared_by_profiles((*outcomes, *exploratory), _line_name)
    groups = []
    for verdict, title in TITLES.items():
        same = [outcome for outcome in comparisons if outcome.verdict is verdict]
        lines = [*_lines(same, shared, longer if verdict is OutcomeVerdict.OPEN else ())]
        if verdict is OutcomeVerdict.OPEN:
            # The gains of longer runs are said once.
            lines = list(dict.fromkeys((*lines, *_wholly_undecided(comparisons))))
        groups.append(VerdictLines(title, tuple(lines)))
    groups.append(VerdictLines(DESCRIBED, tuple(_described_lines(outcomes))))
    groups.append(VerdictLines(ASKED_BESIDES, tuple(_exploratory_lines(exploratory, shared))))
    return [group for group in groups if group.lines]


def conclude(outcomes: Sequence[QuestionOutcome]) -> str:
    """Conclude the primary comparisons of the first study in a sentence: verdicts, least and greatest mean.

    Where some have their verdict the others are named as awaited; where none has, it says so first. Empty
    where no seed of them is recorded.
    """
    primary = [outcome for outcome in outcomes if outcome.question.role == "primary" and outcome.values]
    first = [outcome for outcome in primary if outcome.study.key == primary[0].study.key]
    if not first:
        return ""
    title = first[0].study.title
    decided = [outcome for outcome in first if not outcome.pending]
    if all(outcome.closed_short for outcome in decided):
        count = f"n = {_count_seeds(first)} of {counted(max(outcome.planned for outcome in first), 'seed')}"
        verdict = "no verdict" if len(decided) == len(first) else "no verdict yet"
        so_far = "; ".join(_parts(first, verdicts=False))
        return f"{title}, {_name_bases(first)}{count}: {verdict}. So far {so_far}."
    parts, which = [*_parts(decided, verdicts=True)], ", "
    if awaited := dict.fromkeys(
        f"{_first_side(outcome)} ({len(outcome.values)} of {counted(outcome.planned, 'seed')})"
        for outcome in first
        if outcome.pending
    ):
        which = f"; {', '.join(dict.fromkeys(map(_first_side, decided)))} "
        parts.append(f"awaited: {', '.join(awaited)}")
    return f"{title}{which}{_name_bases(decided)}n = {_count_seeds(decided)}: {'; '.join(parts)}."


def _parts(outcomes: Sequence[QuestionOutcome], *, verdicts: bool) -> Iterator[str]:
    for key in dict.fromkeys(outcome.question.key for outcome in outcomes):
        same = [outcome for outcome in outcomes if outcome.question.key == key]
        ordered = sorted(same, key=lambda outcome: outcome.mean or 0.0)
        ends = dict.fromkeys(format_value(outcome, outcome.mean) for outcome in (ordered[0], ordered[-1]))
        values, times = " to ".join(ends), Counter(outcome.verdict.value for outcome in same)
        counts = ", ".join(f"{verdict} in {number} of {len(same)}" for verdict, number in times.items())
        yield f"{metric_heading(same[0])} {f'{counts} ({values})' if verdicts else values}"


def _name_bases(outcomes: Sequence[QuestionOutcome]) -> str:
    bases = dict.fromkeys(outcome.base for outcome in outcomes if len(outcome.sides) > 1)
    return f"against {' and '.join(bases)}, " if bases else ""


def _count_seeds(outcomes: Sequence[QuestionOutcome]) -> str:
    return span([len(outcome.values) for outcome in outcomes])


def _first_side(outcome: QuestionOutcome) -> str:
    return outcome.name.partition(" minus ")[0]


def _line_name(outcome: QuestionOutcome) -> tuple[str, str]:
    return metric_heading(outcome), outcome.name.partition(" minus ")[2]


def _wholly_undecided(comparisons: Sequence[QuestionOutcome]) -> Iterator[str]:
    """Yield what the plan calls an interval that includes zero, of questions with no other answer."""
    for key in dict.fromkeys(outcome.question.key for outcome in comparisons):
        same = [outcome for outcome in comparisons if outcome.question.key == key]
        question = same[0].question
        if all(outcome.verdict is OutcomeVerdict.OPEN for outcome in same) and len(same) > 1:
            yield (
                f"{key}: undecided {len(same)} times; by the plan, this would count against it: "
                f"{question.counts_against.strip()}"
            )


def describe_continued_runs(question: Question, longer: Sequence[ContinuedRuns]) -> list[str]:
    """Describe the later gains of runs that bear on a question: how far the metric is from its ceiling."""
    described = []
    for continued in (runs for runs in longer if runs.bears_on(question)):
        measure = MEASURES[continued.question.metric]
        gain, least, most = (
            f"{measure.factor * value:.{measure.decimals}f}"
            for value in (continued.mean, min(continued.gains.values()), max(continued.gains.values()))
        )
        runs = counted(len(continued.gains), f"{continued.side.rpartition('/')[2]} run")
        fewest, most_further = min(continued.further.values()), max(continued.further.values())
        further = f"{fewest} to {most_further} further groups"
        if fewest == most_further:
            further = counted(fewest, "further group")
        described.append(
            f"Longer runs: {runs} went on after {continued.groups} groups, for {further}, and gained {gain} "
            f"in {measure.heading} on average ({least} to {most})"
        )
    return described


def build_continued_table(longer: Sequence[ContinuedRuns]) -> Table:
    """Build the table of longer runs, a row per side: further groups and gain, in the metric's unit."""
    lines: list[Line] = []
    for runs in longer:
        origins, n, measure = tuple(map(Origin, runs.files)), len(runs.gains), MEASURES[runs.question.metric]
        further, gains = runs.further.values(), runs.gains.values()
        over = f"over seeds of {measure.formula}, all groups minus those compared"
        cells = {
            "Groups": Cell(runs.groups, n, "groups that the question compares", origins),
            "Fewest further": Cell(min(further), n, "groups after these, of the shortest run", origins),
            "Most further": Cell(max(further), n, "groups after these, of the longest run", origins),
        }
        whats = (
            ("Gain", runs.mean, "mean"),
            ("Least", min(gains), "least"),
            ("Most", max(gains), "greatest"),
        )
        for heading, value, what in whats:
            scaled = measure.factor * value
            cells[heading] = Cell(scaled, n, f"{what} {over}", origins, measure.decimals)
        lines.append((runs.side, cells))
    note = "The best of all groups minus the best of the groups compared, of one run; n counts seeds."
    return table_of("continued", "What longer runs still found", "Runs", lines, note)


def _described_lines(outcomes: Sequence[QuestionOutcome]) -> Iterator[str]:
    """Yield a line per question of one side that the paper has a number for, and what counts against it."""
    by_question: dict[str, list[QuestionOutcome]] = {}
    for outcome in outcomes:
        if outcome.verdict is OutcomeVerdict.DESCRIBED and outcome.question.published:
            by_question.setdefault(outcome.question.key, []).append(outcome)
    for same in by_question.values():
        question, values = same[0].question, []
        for outcome in same:
            paper = format_value(outcome, question.published[question.pairs.index(outcome.sides)])
            ours = f"{format_value(outcome, outcome.mean)} {format_interval(outcome, outcome.interval)}"
            values.append(f"{outcome.name} {ours} (paper: {paper})")
        yield (
            f"{same[0].study.key}: {metric_heading(same[0])}, n = {_count_seeds(same)}: {', '.join(values)}; "
            f"this would count against it: {question.counts_against.strip()}"
        )


def _exploratory_lines(outcomes: Sequence[QuestionOutcome], shared: set[tuple[str, str]]) -> Iterator[str]:
    comparisons = list(_distinct_comparisons(outcomes))
    for metric in dict.fromkeys(outcome.question.metric for outcome in comparisons):
        for verdict in TITLES:
            same = (
                outcome
                for outcome in comparisons
                if (outcome.question.metric, outcome.verdict) == (metric, verdict)
            )
            yield from (f"{line}: {verdict.value}" for line in _lines(same, shared))


def _distinct_comparisons(outcomes: Sequence[QuestionOutcome]) -> Iterator[QuestionOutcome]:
    """Yield each comparison of a metric once: its difference, or its signs where no difference is planned.

    A comparison that was closed short is left out where another question has all its seeds.
    """
    whole = {_comparison_key(outcome) for outcome in outcomes if not outcome.closed_short}
    comparisons = [
        outcome for outcome in outcomes if not outcome.answered_elsewhere and len(outcome.sides) > 1
    ]
    comparisons = [
        outcome for outcome in comparisons if not (outcome.closed_short and _comparison_key(outcome) in whole)
    ]
    differences = {
        (outcome.sides, outcome.question.metric) for outcome in comparisons if _is_difference(outcome)
    }
    for outcome in comparisons:
        if _is_difference(outcome) or (outcome.sides, outcome.question.metric) not in differences:
            yield outcome


def _comparison_key(outcome: QuestionOutcome) -> tuple[object, ...]:
    return outcome.sides, outcome.question.metric, outcome.question.estimator


def _is_difference(outcome: QuestionOutcome) -> bool:
    return outcome.question.estimator == "mean_difference"


def _lines(
    outcomes: Iterable[QuestionOutcome], shared: set[tuple[str, str]], longer: Sequence[ContinuedRuns] = ()
) -> Iterator[str]:
    groups: dict[tuple[str, str, str, str, int], list[QuestionOutcome]] = {}
    for outcome in outcomes:
        name = _line_name(outcome)
        profile = f"{outcome.profile}: " if name in shared and outcome.profile else ""
        groups.setdefault((outcome.study.key, profile, *name, len(outcome.values)), []).append(outcome)
    for (_, profile, metric, second, n), same in groups.items():
        values = ", ".join(f"{_first_side(outcome)} {_format_estimate(outcome)}" for outcome in same)
        yield f"{profile}{metric} against {second}, n = {n}: {values}"
        yield from describe_continued_runs(same[0].question, longer)


def _format_estimate(outcome: QuestionOutcome) -> str:
    if not _is_difference(outcome):
        return f"above in {outcome.above}, below in {outcome.below}"
    end = f" (not above {format_value(outcome, outcome.corrected[1])})" if outcome.corrected else ""
    return f"{format_value(outcome, outcome.mean)}{end if outcome.verdict is OutcomeVerdict.OPEN else ''}"
