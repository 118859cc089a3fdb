"""The paper's measures of a run, and of a part of a run, as cells of tables."""

from collections.abc import Callable
from dataclasses import dataclass

from search_to_signal.analysis.aggregate import difference_cell
from search_to_signal.analysis.metrics.search import (
    improve_yield,
    strict_frontier_yield,
    valid_only_performance,
    valid_rate,
)
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, Origin
from search_to_signal.records.groups import GroupBatch


@dataclass(frozen=True)
class Measure:
    """A field of RunMetrics as a column; ``change`` heads the column of its differences."""

    field: str
    heading: str
    change: str
    formula: str
    factor: float = 1.0
    decimals: int = 4

    def cell(self, run: RecordedRun) -> Cell:
        """Its value in a run."""
        return self.of(getattr(run.metrics, self.field), run.everything)

    def of(self, value: float | None, *origins: Origin) -> Cell:
        """A value of this measure in the unit of its column."""
        scaled = value if value is None or self.factor == 1.0 else self.factor * value
        return Cell(scaled, formula=self.formula, origins=origins, decimals=self.decimals)


def _share(field: str, heading: str, formula: str) -> Measure:
    change = heading.replace("(%)", "(points)")
    return Measure(field, heading, change, f"{formula}, in percent", factor=100.0, decimals=2)


FINAL_BEST = Measure(
    "final_best", "Final best", "Final best", "best score after the last group, the seed heuristic included"
)
AUC = Measure(
    "trajectory_auc", "Trajectory AUC", "Trajectory AUC", "mean over groups of the best score so far (D19)"
)
VALID = _share("valid_rate", "Valid (%)", "valid completions / completions")
VALID_ONLY = Measure(
    "valid_only_performance", "Valid-only perf.", "Valid-only perf.", "mean score of valid completions"
)
IMPROVE = _share(
    "improve_yield", "Improve yield (%)", "completions better than their best prompt base / completions"
)
FRONTIER = _share(
    "strict_frontier_yield", "Frontier (%)", "completions better than the frontier before them / completions"
)
RESPONSES = _share("response_uniqueness", "Unique responses (%)", "distinct response texts / completions")
PROMPTS = _share("prompt_uniqueness", "Unique prompts (%)", "distinct prompts / groups")
PARENTS = _share("parent_uniqueness", "Unique parents (%)", "distinct sets of parents / groups")

CORE = (FINAL_BEST, AUC, VALID, VALID_ONLY, IMPROVE)
STREAM = (VALID, VALID_ONLY, IMPROVE, FRONTIER)
ALL = (*CORE, FRONTIER, RESPONSES, PROMPTS, PARENTS)

_OF_BATCH: dict[str, Callable[[GroupBatch], float | None]] = {
    "valid_rate": valid_rate,
    "valid_only_performance": valid_only_performance,
    "improve_yield": improve_yield,
    "strict_frontier_yield": strict_frontier_yield,
}


def stream_cells(batch: GroupBatch, origin: Origin) -> tuple[Cell, ...]:
    """The measures of the proposal stream, in the order of STREAM, over some groups of a run."""
    return tuple(measure.of(_OF_BATCH[measure.field](batch), origin) for measure in STREAM)


def differences(
    first: RecordedRun, second: RecordedRun, measures: tuple[Measure, ...] = ALL
) -> tuple[Cell, ...]:
    """first - second in every measure."""
    return tuple(difference_cell(measure.cell(first), measure.cell(second)) for measure in measures)
