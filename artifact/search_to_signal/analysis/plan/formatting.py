"""Outcomes formatted as sentences, as a grid and as tables: metric, seeds, estimate and verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

from search_to_signal.analysis.plan.metric_values import (
    COPIED_SCORES,
    COPIES,
    DIFFERENCE,
    EACH_ONCE,
    EQUAL,
    FLAT,
    FLAT_VALID,
    IDLE,
    IDLE_ROUNDS,
    MEDIAN,
    NEW_FORMS,
    NOT_COPIED,
    PROGRAMS,
    RETUNED,
    START,
    USABLE,
    VALID_OF_USABLE,
    ZERO,
)
from search_to_signal.analysis.plan.verdicts import Bounds, OutcomeVerdict, QuestionOutcome
from search_to_signal.analysis.results import Origin
from search_to_signal.analysis.tables.cells import Cell, Row, Table
from search_to_signal.analysis.tables.measures import ALL, Measure, share
from search_to_signal.progress import counted
from search_to_signal.records.plan import Plan

NAME, EXPLORATORY = "outcomes", "besides"
COLUMNS = (
    *("First", "Second", "Estimate", "Deviation", "Low", "High", "Verdict low", "Verdict high"),
    *("Above", "Below", "Seeds", "Planned", "Comparisons"),
    *("Smallest effect", "Smallest effect recorded", "Verdict", "Verdict of"),
)
_OWN = (
    share(PROGRAMS, "Distinct programs (%)", "distinct canonical programs / valid completions"),
    share(
        COPIES,
        "Copies of a parent (%)",
        "valid completions whose program is one of their prompt's bases / valid completions",
    ),
    share(
        COPIED_SCORES,
        "Score of a parent, other code (%)",
        "valid completions that score within 1e-7 of one of their prompt's bases and are none of them / "
        "valid completions",
    ),
    Measure(
        NEW_FORMS,
        "New form and new score",
        "admitted heuristics of a run whose program, numbers aside, is none of its earlier heuristics' and "
        "whose score no valid completion before it had within 1e-7",
        1.0,
        1,
    ),
    share(
        NOT_COPIED,
        "Valid, no copy (%)",
        "valid completions whose program is none of their prompt's bases / completions",
    ),
    share(
        RETUNED,
        "Parents with other numbers (%)",
        "admitted heuristics that differ from a base of their prompt in numbers alone / admitted",
    ),
    Measure(EACH_ONCE, "Valid-only perf., each program once", "mean score of distinct valid programs"),
    Measure(MEDIAN, "Valid-only median", "median score of valid completions"),
    share(
        USABLE, "Usable function (%)", "completions with rationale, code and required function / completions"
    ),
    share(VALID_OF_USABLE, "Valid of usable (%)", "valid completions / completions with a usable function"),
    share(
        DIFFERENCE,
        "Groups told apart (%)",
        "groups in which two mappings give advantages more than 0.001 apart / groups",
    ),
    share(
        EQUAL,
        "Equal advantages (%)",
        "groups in which native and factorized give advantages within 0.001 / groups",
    ),
    share(
        FLAT,
        "Zero advantage by Factorized (%)",
        "groups in which factorized gives only zero advantages / groups",
    ),
    share(
        FLAT_VALID,
        "Zero advantage by Factorized, all valid (%)",
        "groups of valid completions in which factorized gives only zero advantages / groups",
    ),
    share(ZERO, "Zero advantage (%)", "groups whose advantages are all zero / groups"),
    share(
        IDLE,
        "Positive non-improvers (%)",
        "valid non-improvers with positive advantage / valid non-improvers",
    ),
    share(
        IDLE_ROUNDS,
        "Rounds with idle credit (%)",
        "groups without improver that give a valid completion positive advantage / groups",
    ),
    share(START, "Before the first valid (%)", "groups before the first valid one / groups"),
)
_SPENT = {"fewest_programs": "as many programs", "fewest_calls": "as many evaluator calls"}
_MEASURES = {measure.field: measure for measure in (*_OWN, *ALL)}


def find_measure(metric: str) -> Measure:
    """Return heading, unit and factor of a metric; a metric without a table keeps its own name and unit."""
    return _MEASURES.get(metric, Measure(metric, metric.replace("_", " "), metric))


def metric_heading(outcome: QuestionOutcome) -> str:
    """Return the column heading of the metric, or of its difference where there are two sides.

    It says where both sides are cut where the run that spent less ends.
    """
    measure, question = find_measure(outcome.question.metric), outcome.question
    heading = measure.change if len(outcome.sides) > 1 else measure.heading
    spent = _SPENT.get(question.match, f"equal {question.clock} time")
    return f"{heading}, {spent}" if question.cuts_both else heading


def format_value(outcome: QuestionOutcome, value: float | None) -> str:
    """Format a value in the unit of its metric, rounded; a difference has a sign."""
    if value is None:
        return "–"
    measure = find_measure(outcome.question.metric)
    sign = "+" if len(outcome.sides) > 1 else ""
    return f"{measure.factor * value:{sign}.{measure.decimals}f}"


def format_interval(outcome: QuestionOutcome, interval: Bounds | None) -> str:
    """Format an interval in brackets; empty where there is none."""
    return "" if interval is None else f"[{', '.join(format_value(outcome, end) for end in interval)}]"


def format_outcome(outcome: QuestionOutcome) -> str:
    """Format ``native minus frozen: Valid (points) +12.91 [11.50, 14.32], n = 20: above zero``.

    An undecided outcome is followed by the bounds of its interval and the effect that was likely detectable.
    """
    n, planned = len(outcome.values), outcome.planned
    count = f"n = {n}" if n == planned else f"n = {n} of {planned} planned"
    if not n:
        missing = f"{outcome.verdict.value}, {counted(planned, 'seed')} planned"
        return f"{outcome.name}: {metric_heading(outcome)}: {missing}{_amendment(outcome)}"
    if outcome.question.estimator == "sign_count":
        seeds = counted(n, "seed")
        estimate = f"{metric_heading(outcome)} above in {outcome.above} of {seeds}, below in {outcome.below}"
    else:
        interval = format_interval(outcome, outcome.interval)
        spread = (
            "" if interval or outcome.deviation is None else f"± {format_value(outcome, outcome.deviation)}"
        )
        estimate = " ".join(
            filter(None, (metric_heading(outcome), format_value(outcome, outcome.mean), interval or spread))
        )
    verdict = f"{outcome.verdict.value}{_amendment(outcome)}{_undecided_bounds(outcome)}{_source(outcome)}"
    return f"{outcome.name}: {estimate}, {count}: {verdict}{_published(outcome)}"


def _published(outcome: QuestionOutcome) -> str:
    """Return the paper's number for the same comparison, of a larger model over its own seeds."""
    question = outcome.question
    if not question.published:
        return ""
    return f"; the paper has {format_value(outcome, question.published[question.pairs.index(outcome.sides)])}"


def _amendment(outcome: QuestionOutcome) -> str:
    return f" ({outcome.closed.words})" if outcome.closed_short and outcome.closed else ""


def _source(outcome: QuestionOutcome) -> str:
    return f", as {outcome.source.key} says" if outcome.answered_elsewhere else ""


def _undecided_bounds(outcome: QuestionOutcome) -> str:
    """Return the bounds of an undecided difference and the effect that was likely detectable."""
    if outcome.verdict is not OutcomeVerdict.OPEN or outcome.corrected is None:
        return ""
    low, high = (format_value(outcome, end) for end in outcome.corrected)
    return f", not above {high} nor below {low}{_detectable_effects(outcome)}"


def _detectable_effects(outcome: QuestionOutcome) -> str:
    """Return the smallest detectable effects, without sign; empty where no deviation was recorded."""
    recorded, planned = (
        None if effect is None else format_value(outcome, effect).removeprefix("+")
        for effect in (outcome.recorded_effect, outcome.smallest_effect)
    )
    if recorded is None:
        return ""
    by_plan = "" if planned is None else f"; {planned} by the plan"
    return f" (by the recorded deviation {recorded} would likely have been seen{by_plan})"


@dataclass(frozen=True)
class Grid:
    """The mean differences of a study: a row per comparison, a column per metric, None where not planned.

    A cell is (difference with its interval, the means of both sides, n and verdict).
    """

    metrics: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str, str] | None, ...]], ...]


def build_study_grid(outcomes: Sequence[QuestionOutcome]) -> Grid | None:
    """Build the grid of one study's mean differences; None where it has none."""
    cells = {
        (outcome.name, metric_heading(outcome)): _grid_cell(outcome)
        for outcome in outcomes
        if outcome.question.estimator == "mean_difference" and outcome.values
    }
    names, metrics = (tuple(dict.fromkeys(key[part] for key in cells)) for part in (0, 1))
    rows = tuple((name, tuple(cells.get((name, metric)) for metric in metrics)) for name in names)
    return Grid(metrics, rows) if cells else None


def _levels(outcome: QuestionOutcome) -> list[str]:
    measure = find_measure(outcome.question.metric)
    return [f"{measure.factor * level:.{measure.decimals}f}" for level in outcome.levels]


def _change(outcome: QuestionOutcome) -> str:
    return f"{format_value(outcome, outcome.mean)} {format_interval(outcome, outcome.interval)}".strip()


def _grid_cell(outcome: QuestionOutcome) -> tuple[str, str, str]:
    summary = f"n = {len(outcome.values)}: {outcome.verdict.value}{_source(outcome)}"
    return _change(outcome), " against ".join(_levels(outcome)), summary


def select_primary(outcomes: Sequence[QuestionOutcome]) -> list[QuestionOutcome]:
    """Return the primary comparisons that have at least one recorded seed."""
    return [
        outcome
        for outcome in outcomes
        if outcome.question.role == "primary" and len(outcome.sides) > 1 and outcome.values
    ]


def select_headline(outcomes: Sequence[QuestionOutcome]) -> list[QuestionOutcome]:
    """Return the primary comparisons and every question with an answer below zero, so that losses show."""
    worse = {
        outcome.question.key
        for outcome in outcomes
        if outcome.verdict is OutcomeVerdict.BELOW and not outcome.answered_elsewhere
    }
    primary = {outcome.question.key for outcome in select_primary(outcomes)}
    return [outcome for outcome in outcomes if outcome.question.key in primary | worse and outcome.values]


def headline_rows(outcomes: Sequence[QuestionOutcome]) -> list[list[str]]:
    """Format the headline comparisons as rows: a heading, each second side's mean, and the differences.

    Empty where nothing is recorded. A difference is ``+14.44 [+12.59, +16.30] above zero``, without verdict
    where seeds are missing; a side that is compared at several lengths has a mean for each.
    """
    cells: dict[tuple[str, str], dict[str, None]] = {}
    for outcome in select_headline(outcomes):
        metric = find_measure(outcome.question.metric).heading
        verdict = "" if outcome.pending or outcome.closed_short else f" {outcome.verdict.value}"
        cells.setdefault((outcome.base, metric), {})[_levels(outcome)[-1]] = None
        cells.setdefault((outcome.name, metric), {})[f"{_change(outcome)}{verdict}"] = None
    names, metrics = (list(dict.fromkeys(key[part] for key in cells)) for part in (0, 1))
    body = [[name, *(" / ".join(cells.get((name, metric), {})) for metric in metrics)] for name in names]
    return [["Comparison", *metrics], *body] if cells else []


def build_outcome_table(outcomes: Sequence[QuestionOutcome], plan: Plan) -> Table:
    """Build the table of all outcomes, a row each; values in the units of their metrics."""
    count = sum(len(outcome.sides) > 1 and not outcome.answered_elsewhere for outcome in outcomes)
    level = plan.analysis.level
    note = (
        f"First minus second of one seed. Low and High: interval at {level:.0%} for each alone; the verdict "
        "takes the one at the level that its comparisons leave (Bonferroni within the question). "
        f"{count} comparisons stand here, {len(outcomes)} lines in all; nothing corrects over questions. "
        "Smallest effects are those that the planned seeds see with probability "
        f"{plan.analysis.power:g}: by the pilot's deviations, and by the recorded one. A comparison that "
        "several questions ask for has the answer of the one with the most seeds, which Verdict of names."
    )
    if any(outcome.verdict is OutcomeVerdict.MISSING for outcome in outcomes):
        note += f" Finished runs of what is {OutcomeVerdict.MISSING.value} may wait for an earlier seed."
    rows = tuple(Row(f"{outcome.question.key}/{outcome.name}", _cells(outcome)) for outcome in outcomes)
    return Table(NAME, "Plan and outcome", "cohort", COLUMNS, rows, "Question/comparison", note)


def build_exploratory_table(outcomes: Sequence[QuestionOutcome], plan: Plan) -> Table:
    """Build the table of exploratory outcomes, with the columns of planned ones."""
    note = (
        "Exploratory: asked of the plan's runs after it was written, over the pairs, seeds and comparisons "
        f"of the question named first. Intervals at {plan.analysis.level:.0%} for each alone, verdicts at "
        "the level that the comparisons leave."
    )
    title, head = "Asked besides the plan", "Question+what/comparison"
    rows = tuple(Row(f"{outcome.question.key}/{outcome.name}", _cells(outcome)) for outcome in outcomes)
    return Table(EXPLORATORY, title, "cohort", COLUMNS, rows, head, note)


def _cells(outcome: QuestionOutcome) -> tuple[Cell, ...]:
    measure = find_measure(outcome.question.metric)
    files = dict.fromkeys(side.file for pair in outcome.pairs for side in pair.sides)
    origins = tuple(map(Origin, files))
    n, formula = len(outcome.values), f"{outcome.question.estimator} over seeds of {measure.formula}"

    def cell(value: float | None, text: str = formula) -> Cell:
        scaled = None if value is None else measure.factor * value
        return Cell(scaled, n, text, origins, measure.decimals)

    first, second = (*outcome.levels, None, None)[:2]
    interval, corrected = outcome.interval or (None, None), outcome.corrected or (None, None)
    counts = (outcome.above, outcome.below, n, outcome.question.seeds, outcome.source.comparisons)
    return (
        cell(first, "mean over seeds of the first side"),
        cell(second, "mean over seeds of the second side"),
        cell(outcome.mean),
        cell(outcome.deviation, "sample deviation over seeds"),
        *(cell(end, f"{outcome.question.interval} interval of the mean") for end in interval),
        *(
            cell(end, f"{outcome.question.interval} interval of the mean, for the verdict")
            for end in corrected
        ),
        *(Cell(count, n, "seeds, or comparisons", origins) for count in counts),
        cell(outcome.smallest_effect, "what the plan said it could see, by the pilot's deviations"),
        cell(outcome.recorded_effect, "what the planned seeds see by the recorded deviation"),
        Cell(outcome.verdict.value, n, "of the corrected interval, or of a sign test", origins),
        Cell(outcome.source.key, n, "the question whose answer this is", origins),
    )
