"""The paper's main cohort beside a plan's main study: the same comparisons, by direction, never pooled."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean

from search_to_signal.analysis.plan.formatting import (
    format_interval,
    format_value,
    metric_heading,
)
from search_to_signal.analysis.plan.verdicts import OutcomeVerdict, QuestionOutcome
from search_to_signal.package_data import PUBLISHED
from search_to_signal.records.layers import COHORT

_SEEDS = "core_seeds.csv"
# Heading of the published column, and what one of its units is of the metric's.
_COLUMNS = {
    "valid_rate": ("Valid", 0.01),
    "valid_only_performance": ("Valid-only", 1.0),
    "final_best": ("Final best", 1.0),
}
AGREES, DISAGREES = "agrees", "disagrees"
BESIDE_NOTE = (
    "The paper's numbers are of a model of 7 billion parameters and 500 groups: the mean of its differences "
    "within seeds, and the seeds above zero. Only directions are compared: a verdict agrees with the paper "
    "where it has the sign that all the paper's seeds have. All other numbers of the paper are judged in "
    "claims/claims.md beside this page."
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
    """A row per comparison and a column per metric; a cell is None where the plan does not ask.

    ``against`` says for each metric what would count against it.
    """

    metrics: tuple[str, ...]
    rows: tuple[tuple[str, tuple[BesideCell | None, ...]], ...]
    against: str

    def text_rows(self) -> list[list[str]]:
        """Return the rows as text, the heading first."""
        cells = (
            [name, *("" if cell is None else _joined(cell) for cell in cells)] for name, cells in self.rows
        )
        return [["first minus second", *self.metrics], *cells]


def _joined(cell: BesideCell) -> str:
    return f"{cell.ours}, {cell.verdict}; {cell.paper}: {cell.standing}"


def build_beside_the_paper(outcomes: Sequence[QuestionOutcome]) -> BesideThePaper | None:
    """Set the primary outcomes of one study's TSP cohort beside the paper's seeds.

    None where the paper has no comparison of them.
    """
    asked = [outcome for outcome in outcomes if outcome.question.role == "primary" and outcome.values]
    asked = [outcome for outcome in asked if outcome.question.metric in _COLUMNS and _is_of_cohort(outcome)]
    if not any(_published_differences(outcome) for outcome in asked):
        return None
    cells = {(outcome.name, metric_heading(outcome)): _cell(outcome) for outcome in asked}
    names, metrics = (tuple(dict.fromkeys(key[part] for key in cells)) for part in (0, 1))
    rows = tuple((name, tuple(cells.get((name, metric)) for metric in metrics)) for name in names)
    against = (f"{metric_heading(outcome)}: {outcome.question.counts_against.strip()}" for outcome in asked)
    return BesideThePaper(metrics, rows, "; ".join(dict.fromkeys(against)))


def _is_of_cohort(outcome: QuestionOutcome) -> bool:
    """Whether the comparison is that of two conditions of one cohort, by the mean."""
    folders = {side.rpartition("/")[0] for side in outcome.sides}
    of_cohort = len(outcome.sides) > 1 and len(folders) == 1 and folders.pop().endswith(f"/{COHORT}")
    return of_cohort and outcome.question.estimator == "mean_difference"


def _cell(outcome: QuestionOutcome) -> BesideCell:
    ours = f"{format_value(outcome, outcome.mean)} {format_interval(outcome, outcome.interval)}".strip()
    n = len(outcome.values)
    count = f"n = {n}" if n == outcome.planned else f"n = {n} of {outcome.planned}"
    published = _published_differences(outcome)
    verdict = f"{count}: {outcome.verdict.value}"
    if not published:
        return BesideCell(ours, verdict, "paper: no such number", "not comparable")
    above = f"above in {sum(value > 0.0 for value in published)} of {len(published)}"
    paper = f"paper {format_value(outcome, mean(published))}, {above}"
    return BesideCell(ours, verdict, paper, _standing(outcome, published))


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
    """The published rows by condition, named as here, and seed."""
    rows: dict[str, dict[str, Mapping[str, str]]] = {}
    with (PUBLISHED / _SEEDS).open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            rows.setdefault(row["Condition"].lower().replace("-", "_"), {})[row["Seed"]] = row
    return rows
