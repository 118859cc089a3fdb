"""Outcomes formatted as sentences, as a grid and as tables: metric, seeds, estimate and verdict.

The paper's main cohort stands beside a plan's main study: the same comparisons, by direction, never pooled.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean
from typing import Generic, TypeVar

from search_to_signal.base.package_data import PUBLISHED
from search_to_signal.base.progress import counted
from search_to_signal.records.layers import COHORT
from search_to_signal.records.plan import Plan
from search_to_signal.report.results import Origin
from search_to_signal.report.tables.cells import Cell, Cells, Line, Table, table_of
from search_to_signal.report.tables.measures import MEASURES
from search_to_signal.study.verdicts import Bounds, OutcomeVerdict, QuestionOutcome

NAME, EXPLORATORY = "outcomes", "besides"
_SPENT = {"fewest_programs": "as many programs", "fewest_calls": "as many evaluator calls"}


def metric_heading(outcome: QuestionOutcome) -> str:
    """Return the column heading of the metric, or of its difference where there are two sides.

    It says where both sides are cut where the run that spent less ends.
    """
    measure, question = MEASURES[outcome.question.metric], outcome.question
    heading = measure.change if len(outcome.sides) > 1 else measure.heading
    spent = _SPENT.get(question.match, f"equal {question.clock} time")
    return f"{heading}, {spent}" if question.cuts_both else heading


def format_value(outcome: QuestionOutcome, value: float | None) -> str:
    """Format a value in the unit of its metric, rounded; a difference has a sign."""
    if value is None:
        return "–"
    measure = MEASURES[outcome.question.metric]
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
    if outcome.question.published:
        # Of a larger model over its own seeds.
        published = outcome.question.published[outcome.question.pairs.index(outcome.sides)]
        verdict += f"; the paper has {format_value(outcome, published)}"
    return f"{outcome.name}: {estimate}, {count}: {verdict}"


def _amendment(outcome: QuestionOutcome) -> str:
    return f" ({outcome.closed.words})" if outcome.closed_short and outcome.closed else ""


def _source(outcome: QuestionOutcome) -> str:
    return f", answered by {outcome.source.key}" if outcome.answered_elsewhere else ""


def _undecided_bounds(outcome: QuestionOutcome) -> str:
    """The bounds of an undecided difference, and without sign the effect that was likely detectable."""
    if outcome.verdict is not OutcomeVerdict.OPEN or outcome.corrected is None:
        return ""
    low, high = (format_value(outcome, end) for end in outcome.corrected)
    bounds = f", not above {high} nor below {low}"
    if outcome.recorded_effect is None:
        return bounds
    recorded, planned = (
        format_value(outcome, effect).removeprefix("+")
        for effect in (outcome.recorded_effect, outcome.smallest_effect)
    )
    by_plan = "" if outcome.smallest_effect is None else f"; of {planned} by the plan"
    return (
        f"{bounds} (an effect of {recorded} would likely have been seen, by the recorded deviation{by_plan})"
    )


Content = TypeVar("Content")


@dataclass(frozen=True)
class Grid(Generic[Content]):
    """Contents by comparison (a row) and metric (a column), None where not planned."""

    metrics: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Content | None, ...]], ...]

    @staticmethod
    def of(cells: Mapping[tuple[str, str], Content]) -> "Grid[Content]":
        """Arrange contents, given by comparison and metric, in their order."""
        names, metrics = (tuple(dict.fromkeys(key[part] for key in cells)) for part in (0, 1))
        rows = ((name, tuple(cells.get((name, metric)) for metric in metrics)) for name in names)
        return Grid(metrics, tuple(rows))


def build_study_grid(outcomes: Sequence[QuestionOutcome]) -> Grid[tuple[str, str, str]] | None:
    """Build the grid of one study's mean differences; None where it has none.

    A cell is (difference with its interval, the means of both sides, n and verdict).
    """
    cells = {
        (outcome.name, metric_heading(outcome)): (
            _change(outcome),
            " against ".join(_levels(outcome)),
            f"n = {len(outcome.values)}: {outcome.verdict.value}{_source(outcome)}",
        )
        for outcome in outcomes
        if outcome.question.estimator == "mean_difference" and outcome.values
    }
    return Grid.of(cells) if cells else None


def _levels(outcome: QuestionOutcome) -> list[str]:
    measure = MEASURES[outcome.question.metric]
    return [f"{measure.factor * level:.{measure.decimals}f}" for level in outcome.levels]


def _change(outcome: QuestionOutcome) -> str:
    return f"{format_value(outcome, outcome.mean)} {format_interval(outcome, outcome.interval)}".strip()


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
        metric = MEASURES[outcome.question.metric].heading
        verdict = "" if outcome.pending or outcome.closed_short else f" {outcome.verdict.value}"
        cells.setdefault((outcome.base, metric), {})[_levels(outcome)[-1]] = None
        cells.setdefault((outcome.name, metric), {})[f"{_change(outcome)}{verdict}"] = None
    grid = Grid.of(cells)
    body = [[name, *(" / ".join(own or {}) for own in contents)] for name, contents in grid.rows]
    return [["Comparison", *grid.metrics], *body] if cells else []


def build_outcome_table(outcomes: Sequence[QuestionOutcome], plan: Plan) -> Table:
    """Build the table of all outcomes, a row each; values in the units of their metrics."""
    count = sum(len(outcome.sides) > 1 and not outcome.answered_elsewhere for outcome in outcomes)
    level = plan.analysis.level
    note = (
        "First minus second, within one seed. Low and High are the uncorrected interval at "
        f"{level:.0%}; the verdict uses the wider interval, corrected for the comparisons of its question "
        f"(Bonferroni). The table has {count} comparisons in {len(outcomes)} lines, and nothing corrects "
        "across questions. A smallest effect is what the planned seeds detect with probability "
        f"{plan.analysis.power:g}, by the pilot's deviation and by the recorded one. Where several questions "
        "ask for the same comparison, the one with the most seeds answers it; Verdict of names that question."
    )
    if any(outcome.verdict is OutcomeVerdict.MISSING for outcome in outcomes):
        note += f" Where it says {OutcomeVerdict.MISSING.value}, finished runs may wait for an earlier seed."
    return table_of(NAME, "Plan and outcome", "Question/comparison", _outcome_lines(outcomes), note)


def build_exploratory_table(outcomes: Sequence[QuestionOutcome], plan: Plan) -> Table:
    """Build the table of exploratory outcomes, with the columns of planned ones."""
    note = (
        "Exploratory: asked of the plan's runs after the plan was written, with the pairs, seeds and "
        f"comparisons of the question named first. Low and High are the uncorrected interval at "
        f"{plan.analysis.level:.0%}; verdicts are corrected for the comparisons."
    )
    title, head = "Asked in addition to the plan", "Question+what/comparison"
    return table_of(EXPLORATORY, title, head, _outcome_lines(outcomes), note)


def _outcome_lines(outcomes: Sequence[QuestionOutcome]) -> list[Line]:
    return [(f"{outcome.question.key}/{outcome.name}", _cells(outcome)) for outcome in outcomes]


def _cells(outcome: QuestionOutcome) -> Cells:
    measure = MEASURES[outcome.question.metric]
    files = dict.fromkeys(side.file for pair in outcome.pairs for side in pair.sides)
    origins, n = tuple(map(Origin, files)), len(outcome.values)
    formula = f"{outcome.question.estimator} over seeds of {measure.formula}"

    def cell(value: float | None, text: str = formula) -> Cell:
        scaled = None if value is None else measure.factor * value
        return Cell(scaled, n, text, origins, measure.decimals)

    first, second = (*outcome.levels, None, None)[:2]
    low, high = outcome.interval or (None, None)
    verdict_low, verdict_high = outcome.corrected or (None, None)
    interval = f"{outcome.question.interval} interval of the mean"
    counts = {
        "Above": outcome.above,
        "Below": outcome.below,
        "Seeds": n,
        "Planned": outcome.question.seeds,
        "Comparisons": outcome.source.comparisons,
    }
    planned = "what the plan said it could see, by the pilot's deviations"
    recorded = "what the planned seeds see by the recorded deviation"
    return {
        "First": cell(first, "mean over seeds of the first side"),
        "Second": cell(second, "mean over seeds of the second side"),
        "Estimate": cell(outcome.mean),
        "Deviation": cell(outcome.deviation, "sample deviation over seeds"),
        "Low": cell(low, interval),
        "High": cell(high, interval),
        "Verdict low": cell(verdict_low, f"{interval}, for the verdict"),
        "Verdict high": cell(verdict_high, f"{interval}, for the verdict"),
        **{what: Cell(count, n, "seeds, or comparisons", origins) for what, count in counts.items()},
        "Smallest effect": cell(outcome.smallest_effect, planned),
        "Smallest effect recorded": cell(outcome.recorded_effect, recorded),
        "Verdict": Cell(outcome.verdict.value, n, "of the corrected interval, or of a sign test", origins),
        "Verdict of": Cell(outcome.source.key, n, "the question whose answer this is", origins),
    }


# Heading of the published column, and what one of its units is of the metric's.
_COLUMNS = {
    "valid_rate": ("Valid", 0.01),
    "valid_only_performance": ("Valid-only", 1.0),
    "final_best": ("Final best", 1.0),
}
AGREES, DISAGREES = "agrees", "disagrees"
BESIDE_NOTE = (
    "The paper's numbers come from a model of 7 billion parameters and 500 groups: the mean "
    "difference within "
    "seeds, and how many seeds are above zero. Only directions are compared: a verdict agrees with the paper "
    "where it has the sign that all the paper's seeds have. All other numbers of the paper are judged in "
    "claims/claims.md."
)


@dataclass(frozen=True)
class BesideCell:
    """One comparison and metric: our difference, its n and verdict, the paper's, and how they stand."""

    ours: str
    verdict: str
    paper: str
    standing: str


@dataclass(frozen=True)
class BesideThePaper:
    """Comparisons beside the paper's; ``against`` says for each metric what would count against it."""

    grid: Grid[BesideCell]
    against: str

    def text_rows(self) -> list[list[str]]:
        """Return the rows as text, the heading first."""
        rows = [["first minus second", *self.grid.metrics]]
        for name, cells in self.grid.rows:
            texts = (c and f"{c.ours}, {c.verdict}; {c.paper}: {c.standing}" for c in cells)
            rows.append([name, *(text or "" for text in texts)])
        return rows


def build_beside_the_paper(outcomes: Sequence[QuestionOutcome]) -> BesideThePaper | None:
    """Set the primary outcomes of one study's TSP cohort beside the paper's seeds.

    None where the paper has no comparison of them.
    """
    asked = []
    for outcome in outcomes:
        question, folders = outcome.question, {side.rpartition("/")[0] for side in outcome.sides}
        of_cohort = len(outcome.sides) > 1 and len(folders) == 1 and folders.pop().endswith(f"/{COHORT}")
        by_mean = question.role == "primary" and question.estimator == "mean_difference"
        if of_cohort and by_mean and outcome.values and question.metric in _COLUMNS:
            asked.append(outcome)
    if not any(_published_differences(outcome) for outcome in asked):
        return None
    cells = {(outcome.name, metric_heading(outcome)): _beside(outcome) for outcome in asked}
    against = (f"{metric_heading(outcome)}: {outcome.question.counts_against.strip()}" for outcome in asked)
    return BesideThePaper(Grid.of(cells), "; ".join(dict.fromkeys(against)))


def _beside(outcome: QuestionOutcome) -> BesideCell:
    n, published = len(outcome.values), _published_differences(outcome)
    count = f"n = {n}" if n == outcome.planned else f"n = {n} of {outcome.planned}"
    verdict = f"{count}: {outcome.verdict.value}"
    if not published:
        return BesideCell(_change(outcome), verdict, "paper: no such number", "not comparable")
    above = f"above in {sum(value > 0.0 for value in published)} of {len(published)}"
    paper = f"paper {format_value(outcome, mean(published))}, {above}"
    return BesideCell(_change(outcome), verdict, paper, _standing(outcome, published))


def _standing(outcome: QuestionOutcome, published: Sequence[float]) -> str:
    """Say whether a verdict has the direction of all the paper's seeds; without a verdict nothing is said."""
    if outcome.pending or outcome.closed_short:
        return "no verdict"
    if outcome.verdict not in (OutcomeVerdict.ABOVE, OutcomeVerdict.BELOW):
        return "undecided"
    above, below = (sum(sign * value > 0.0 for value in published) for sign in (1, -1))
    if len(published) not in (above, below):
        return "undecided: the paper's seeds differ"
    same = (outcome.verdict is OutcomeVerdict.ABOVE) == (above == len(published))
    seeds = outcome.above if above else outcome.below
    return f"{AGREES if same else DISAGREES}, its sign in {seeds} of {len(outcome.values)}"


def _published_differences(outcome: QuestionOutcome) -> list[float]:
    """The paper's differences by seed, in the metric's own unit; empty where it lacks one of both sides."""
    column, unit = _COLUMNS[outcome.question.metric]
    first, second = (_published_seeds().get(side.rpartition("/")[2], {}) for side in outcome.sides)
    shared = [seed for seed in first if seed in second]
    return [unit * (float(first[seed][column]) - float(second[seed][column])) for seed in shared]


@cache
def _published_seeds() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    rows: dict[str, dict[str, Mapping[str, str]]] = {}
    with (PUBLISHED / "core_seeds.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            rows.setdefault(row["Condition"].lower().replace("-", "_"), {})[row["Seed"]] = row
    return rows
