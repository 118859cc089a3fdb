"""Outcomes in words and as a table: what was asked, of how many, what came out, and what it says."""

from collections.abc import Sequence
from dataclasses import dataclass

from search_to_signal.analysis.plan.outcomes import Ends, Outcome, Verdict
from search_to_signal.analysis.plan.readings import (
    COPIES,
    DIFFERENCE,
    EACH_ONCE,
    EQUAL,
    IDLE,
    IDLE_ROUNDS,
    PROGRAMS,
    START,
    ZERO,
)
from search_to_signal.analysis.results import Origin
from search_to_signal.analysis.tables.cells import Cell, Row, Table
from search_to_signal.analysis.tables.measures import ALL, Measure
from search_to_signal.progress import counted
from search_to_signal.records.plan import Plan

NAME, BESIDES = "outcomes", "besides"
COLUMNS = (
    *("First", "Second", "Estimate", "Deviation", "Low", "High", "Verdict low", "Verdict high"),
    *("Above", "Below", "Seeds", "Planned", "Comparisons"),
    *("Smallest effect", "Smallest effect recorded", "Verdict", "Verdict of"),
)
_OWN = (
    Measure(
        PROGRAMS,
        "Distinct programs (%)",
        "distinct canonical programs / valid completions, in percent",
        100.0,
        2,
    ),
    Measure(
        COPIES,
        "Copies of a parent (%)",
        "valid completions whose program is one of their prompt's bases / valid completions, in percent",
        100.0,
        2,
    ),
    Measure(EACH_ONCE, "Valid-only perf., each program once", "mean score of distinct valid programs"),
    Measure(
        DIFFERENCE,
        "Groups told apart (%)",
        "groups in which two mappings give advantages more than 0.001 apart / groups, in percent",
        100.0,
        2,
    ),
    Measure(
        EQUAL,
        "Equal advantages (%)",
        "groups in which native and factorized give advantages within 0.001 / groups, in percent",
        100.0,
        2,
    ),
    Measure(
        ZERO, "Zero advantage (%)", "groups whose advantages are all zero / groups, in percent", 100.0, 2
    ),
    Measure(
        IDLE,
        "Positive non-improvers (%)",
        "valid non-improvers with positive advantage / valid non-improvers, in percent",
        100.0,
        2,
    ),
    Measure(
        IDLE_ROUNDS,
        "Rounds with idle credit (%)",
        "groups without improver that give a valid completion positive advantage / groups, in percent",
        100.0,
        2,
    ),
    Measure(
        START,
        "Before the first valid (%)",
        "groups before the first valid one / groups, in percent",
        100.0,
        2,
    ),
)
_MEASURES = {measure.field: measure for measure in (*_OWN, *ALL)}


def measure_of(metric: str) -> Measure:
    """Heading, unit and factor of a metric; one that no table has stands as it is."""
    return _MEASURES.get(metric, Measure(metric, metric.replace("_", " "), metric))


def heading(outcome: Outcome) -> str:
    """The metric as a column of values, or of differences, would be headed."""
    measure = measure_of(outcome.question.metric)
    return measure.change if len(outcome.sides) > 1 else measure.heading


def number(outcome: Outcome, value: float | None) -> str:
    """A value in the unit of its metric, rounded; a difference with its sign."""
    if value is None:
        return "–"
    measure = measure_of(outcome.question.metric)
    sign = "+" if len(outcome.sides) > 1 else ""
    return f"{measure.factor * value:{sign}.{measure.decimals}f}"


def ends(outcome: Outcome, interval: Ends | None) -> str:
    """An interval in brackets; empty where there is none."""
    return "" if interval is None else f"[{', '.join(number(outcome, end) for end in interval)}]"


def sentence(outcome: Outcome) -> str:
    """``native minus frozen: Valid (points) +12.91 [11.50, 14.32], n = 20: above zero``.

    What is undecided says what the interval of the verdict leaves out, and what would likely have been seen.
    """
    n, planned = len(outcome.values), outcome.planned
    of = f"n = {n}" if n == planned else f"n = {n} of {planned} planned"
    if not n:
        missing = f"{outcome.verdict.value}, {counted(planned, 'seed')} planned"
        return f"{outcome.name}: {heading(outcome)}: {missing}{_amendment(outcome)}"
    if outcome.question.estimator == "sign_count":
        what = f"{heading(outcome)} above in {outcome.above} of {n} seeds, below in {outcome.below}"
    else:
        interval = ends(outcome, outcome.interval)
        spread = "" if interval or outcome.deviation is None else f"± {number(outcome, outcome.deviation)}"
        what = " ".join(filter(None, (heading(outcome), number(outcome, outcome.mean), interval or spread)))
    said = f"{outcome.verdict.value}{_amendment(outcome)}{_reach(outcome)}{_source(outcome)}"
    return f"{outcome.name}: {what}, {of}: {said}{_published(outcome)}"


def _published(outcome: Outcome) -> str:
    """What the paper has of the same, of a larger model over its own seeds."""
    asked = outcome.question
    if not asked.published:
        return ""
    return f"; the paper has {number(outcome, asked.published[asked.pairs.index(outcome.sides)])}"


def _amendment(outcome: Outcome) -> str:
    return f" ({outcome.closed.words})" if outcome.short and outcome.closed else ""


def _source(outcome: Outcome) -> str:
    return f", as {outcome.source.key} says" if outcome.borrowed else ""


def _reach(outcome: Outcome) -> str:
    """What an undecided difference can hardly be, and what the test would likely have seen."""
    if outcome.verdict is not Verdict.OPEN or outcome.corrected is None:
        return ""
    low, high = (number(outcome, end) for end in outcome.corrected)
    return f", not above {high} nor below {low}{_power(outcome)}"


def _power(outcome: Outcome) -> str:
    """The smallest effects, without sign; empty where no deviation was recorded."""
    seen, planned = (
        None if effect is None else number(outcome, effect).removeprefix("+")
        for effect in (outcome.recorded_effect, outcome.smallest_effect)
    )
    if seen is None:
        return ""
    told = "" if planned is None else f"; {planned} by the plan"
    return f" (by the recorded deviation {seen} would likely have been seen{told})"


@dataclass(frozen=True)
class Grid:
    """A study at a glance: a row per comparison, a column per metric, empty where nothing is asked.

    A cell is (difference with its interval, the means of both sides, n and verdict).
    """

    metrics: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str, str] | None, ...]], ...]


def study_grid(found: Sequence[Outcome]) -> Grid | None:
    """The mean differences of one study; None where it asks for none."""
    told = {
        (one.name, heading(one)): _glance(one)
        for one in found
        if one.question.estimator == "mean_difference" and one.values
    }
    names, metrics = (tuple(dict.fromkeys(key[part] for key in told)) for part in (0, 1))
    rows = tuple((name, tuple(told.get((name, metric)) for metric in metrics)) for name in names)
    return Grid(metrics, rows) if told else None


def _levels(one: Outcome) -> list[str]:
    measure = measure_of(one.question.metric)
    return [f"{measure.factor * level:.{measure.decimals}f}" for level in one.levels]


def _change(one: Outcome) -> str:
    return f"{number(one, one.mean)} {ends(one, one.interval)}".strip()


def _glance(one: Outcome) -> tuple[str, str, str]:
    said = f"n = {len(one.values)}: {one.verdict.value}{_source(one)}"
    return _change(one), " against ".join(_levels(one)), said


def recorded_primary(found: Sequence[Outcome]) -> list[Outcome]:
    """The primary comparisons of which some seed is recorded."""
    return [one for one in found if one.question.role == "primary" and len(one.sides) > 1 and one.values]


def told_first(found: Sequence[Outcome]) -> list[Outcome]:
    """The primary ones, and every question with an answer below zero: what training lost is not left out."""
    lost = {one.question.key for one in found if one.verdict is Verdict.BELOW and not one.borrowed}
    primary = {one.question.key for one in recorded_primary(found)}
    return [one for one in found if one.question.key in primary | lost and one.values]


def primary_rows(found: Sequence[Outcome]) -> list[list[str]]:
    """The comparisons that are told first, as text: a heading, each second side's mean, and the differences.

    Empty where nothing is recorded. A difference is ``+14.44 [+12.59, +16.30] above zero``, without verdict
    where seeds are missing; a side that was held to several lengths has a mean for each.
    """
    cells: dict[tuple[str, str], dict[str, None]] = {}
    for one in told_first(found):
        metric = measure_of(one.question.metric).heading
        verdict = "" if one.waits or one.short else f" {one.verdict.value}"
        cells.setdefault((one.base, metric), {})[_levels(one)[-1]] = None
        cells.setdefault((one.name, metric), {})[f"{_change(one)}{verdict}"] = None
    names, metrics = (list(dict.fromkeys(key[part] for key in cells)) for part in (0, 1))
    body = [[name, *(" / ".join(cells.get((name, metric), {})) for metric in metrics)] for name in names]
    return [["Comparison", *metrics], *body] if cells else []


def outcome_table(found: Sequence[Outcome], plan: Plan) -> Table:
    """All outcomes, a row each; values in the units of their metrics."""
    count = sum(len(one.sides) > 1 and not one.borrowed for one in found)
    level = plan.analysis.level
    note = (
        f"First minus second of one seed. Low and High: interval at {level:.0%} for each alone; the verdict "
        "takes the one at the level that its comparisons leave (Bonferroni within the question). "
        f"{count} comparisons stand here, {len(found)} lines in all; nothing corrects over questions. "
        "Smallest effects are those that the planned seeds see with probability "
        f"{plan.analysis.power:g}: by the pilot's deviations, and by the recorded one. A comparison that "
        "several questions ask for has the answer of the one with the most seeds, which Verdict of names."
    )
    rows = tuple(Row(f"{one.question.key}/{one.name}", _cells(one)) for one in found)
    return Table(NAME, "Plan and outcome", "cohort", COLUMNS, rows, "Question/comparison", note)


def besides_table(found: Sequence[Outcome], plan: Plan) -> Table:
    """What was asked besides the plan, as outcomes are; each as if the plan had asked for it."""
    note = (
        "Exploratory: asked of the plan's runs after it was written, over the pairs, seeds and comparisons "
        f"of the question named first. Intervals at {plan.analysis.level:.0%} for each alone, verdicts at "
        "the level that the comparisons leave."
    )
    title, head = "Asked besides the plan", "Question+what/comparison"
    rows = tuple(Row(f"{one.question.key}/{one.name}", _cells(one)) for one in found)
    return Table(BESIDES, title, "cohort", COLUMNS, rows, head, note)


def _cells(one: Outcome) -> tuple[Cell, ...]:
    measure = measure_of(one.question.metric)
    files = dict.fromkeys(side.file for pair in one.pairs for side in pair.sides)
    origins = tuple(map(Origin, files))
    n, formula = len(one.values), f"{one.question.estimator} over seeds of {measure.formula}"

    def cell(value: float | None, text: str = formula) -> Cell:
        scaled = None if value is None else measure.factor * value
        return Cell(scaled, n, text, origins, measure.decimals)

    first, second = (*one.levels, None, None)[:2]
    interval, corrected = one.interval or (None, None), one.corrected or (None, None)
    counts = (one.above, one.below, n, one.question.seeds, one.source.comparisons)
    return (
        cell(first, "mean over seeds of the first side"),
        cell(second, "mean over seeds of the second side"),
        cell(one.mean),
        cell(one.deviation, "sample deviation over seeds"),
        *(cell(end, f"{one.question.interval} interval of the mean") for end in interval),
        *(cell(end, f"{one.question.interval} interval of the mean, for the verdict") for end in corrected),
        *(Cell(count, n, "seeds, or comparisons", origins) for count in counts),
        cell(one.smallest_effect, "what the plan said it could see, by the pilot's deviations"),
        cell(one.recorded_effect, "what the planned seeds see by the recorded deviation"),
        Cell(one.verdict.value, n, "of the corrected interval, or of a sign test", origins),
        Cell(one.source.key, n, "the question whose answer this is", origins),
    )
