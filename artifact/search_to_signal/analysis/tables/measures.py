"""The paper's measures of a run as cells, and their differences between comparable runs.

Every difference in a table and every pair in a figure is checked here (paper, equal-horizon effects).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from search_to_signal.analysis.metrics.search import (
    improve_yield,
    strict_frontier_yield,
    valid_only_performance,
    valid_rate,
)
from search_to_signal.analysis.protocols import SHARED, protocol
from search_to_signal.analysis.results import NoTableError, Origin, RecordedRun
from search_to_signal.analysis.tables.cells import (
    Cell,
    Cells,
    PartsOf,
    Row,
    change_of,
    difference_cell,
    label,
    mean_cell,
    number_cell,
    over_seeds,
)
from search_to_signal.errors import RunDirectoryError
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.groups import GroupBatch


@dataclass(frozen=True)
class Measure:
    """A field of RunMetrics as a column."""

    field: str
    heading: str
    formula: str
    factor: float = 1.0
    decimals: int = 4

    @property
    def change(self) -> str:
        """The heading of the column of its differences."""
        return change_of(self.heading)

    def cell(self, run: RecordedRun) -> Cell:
        return self.of(getattr(run.metrics, self.field), run.all_completions)

    def of(self, value: float | None, *origins: Origin) -> Cell:
        """Make the cell of a value, scaled to the unit of the column."""
        scaled = value if value is None or self.factor == 1.0 else self.factor * value
        return number_cell(scaled, self.formula, *origins, decimals=self.decimals)


def share(field: str, heading: str, formula: str) -> Measure:
    """A measure in percent of a field in fractions of 1."""
    return Measure(field, heading, f"{formula}, in percent", factor=100.0, decimals=2)


FINAL_BEST = Measure(
    "final_best", "Final best", "best score after the last group, the seed heuristic included"
)
AUC = Measure("trajectory_auc", "Trajectory AUC", "mean over groups of the best score so far (D19)")
VALID = share("valid_rate", "Valid (%)", "valid completions / completions")
VALID_ONLY = Measure("valid_only_performance", "Valid-only perf.", "mean score of valid completions")
IMPROVE = share(
    "improve_yield", "Improve yield (%)", "completions better than their best prompt base / completions"
)
FRONTIER = share(
    "strict_frontier_yield", "Frontier (%)", "completions better than the frontier before them / completions"
)
RESPONSES = share("response_uniqueness", "Unique responses (%)", "distinct response texts / completions")
PROMPTS = share("prompt_uniqueness", "Unique prompts (%)", "distinct prompts / groups")
PARENTS = share("parent_uniqueness", "Unique parents (%)", "distinct sets of parents / groups")

CORE = (FINAL_BEST, AUC, VALID, VALID_ONLY, IMPROVE)
STREAM = (VALID, VALID_ONLY, IMPROVE, FRONTIER)
ALL = (*CORE, FRONTIER, RESPONSES, PROMPTS, PARENTS)
CHANGES = tuple(measure.change for measure in ALL)
SEED_COLUMNS = (*(measure.heading for measure in (*CORE, FRONTIER)), "Training tokens")

_OF_BATCH: dict[str, Callable[[GroupBatch], float | None]] = {
    "valid_rate": valid_rate,
    "valid_only_performance": valid_only_performance,
    "improve_yield": improve_yield,
    "strict_frontier_yield": strict_frontier_yield,
}


def stream_cells(batch: GroupBatch, origin: Origin) -> Cells:
    """The measures of the proposal stream, in the order of STREAM, over some groups of a run."""
    return tuple(measure.of(_OF_BATCH[measure.field](batch), origin) for measure in STREAM)


def measured(run: RecordedRun, measures: Sequence[Measure] = ALL) -> Cells:
    return tuple(measure.cell(run) for measure in measures)


def seed_cells(run: RecordedRun) -> Cells:
    """The cells of SEED_COLUMNS."""
    return (*measured(run, (*CORE, FRONTIER)), _training_tokens(run))


def _training_tokens(run: RecordedRun) -> Cell:
    """Tokens that entered the loss, over all steps."""
    total = sum(step.training_tokens for step in run.steps)
    return Cell(total, formula="sum of training tokens over steps", origins=(run.all_steps,))


def differences(first: RecordedRun, second: RecordedRun, measures: Sequence[Measure] = ALL) -> Cells:
    """first - second in every measure."""
    return tuple(map(difference_cell, measured(first, measures), measured(second, measures)))


def require_comparable(
    first: RecordedRun, second: RecordedRun, contract: tuple[int, int] | None = None
) -> None:
    """Check that two runs differ only in their conditions.

    Horizons are equal, or in groups those that a ``contract`` fixed before any result.
    Raises RunDirectoryError where problem, model, search, source or seed differ, NoTableError where horizons
    do: such runs are whole, and have tables of their own.
    """
    settings, other_settings = protocol(first.manifest), protocol(second.manifest)
    keys = (*SHARED, "source", "model files")
    different = [key for key in keys if settings.get(key) != other_settings.get(key)]
    if different or first.seed != second.seed:
        what = ", ".join(different or ["seed"])
        raise RunDirectoryError(f"{first.path} and {second.path} differ in {what}: they are not matched")
    lengths = (len(first.groups), len(second.groups))
    if lengths != (contract or lengths[:1] * 2):
        raise NoTableError(
            f"{first.path} has {groups_of([first])} and {second.path} {groups_of([second])}: "
            "runs of unequal horizons are not compared"
        )


def at_one_horizon(runs: Sequence[RecordedRun]) -> tuple[RecordedRun, ...]:
    """Return runs of several layers at one horizon; smoke runs are cut to the shortest.

    Raises NoTableError for formal runs of unequal horizons.
    """
    lengths = {len(run.groups) for run in runs}
    if len(lengths) < 2:
        return tuple(runs)
    if any(run.facts.purpose != "smoke" for run in runs):
        raise NoTableError(f"runs of {groups_of(runs)} are not compared: give them one horizon")
    return tuple(run.prefix(min(lengths)) for run in runs)


def groups_of(runs: Iterable[RecordedRun]) -> str:
    """Format the horizon of runs, from the shortest to the longest where they differ."""
    return in_groups(len(run.groups) for run in runs)


def in_groups(lengths: Iterable[int]) -> str:
    """Format numbers of groups."""
    distinct = sorted(set(lengths))
    if len(distinct) > 1:
        return f"{distinct[0]} to {distinct[-1]} groups"
    return f"{distinct[0]} group{'' if distinct == [1] else 's'}"


@dataclass(frozen=True)
class RunComparison:
    """Pairs of runs, first minus second, one per seed; raises as require_comparable does."""

    first: str
    second: str
    pairs: tuple[tuple[RecordedRun, RecordedRun], ...]

    def __post_init__(self) -> None:
        for first, second in self.pairs:
            require_comparable(first, second)

    @property
    def name(self) -> str:
        return f"{self.first} minus {self.second}"

    def of_seed(self, seed: int) -> str:
        return f"{self.first}-s{seed} minus {self.second}-s{seed}"


def compare_with(runs: Sequence[RecordedRun], condition: str) -> tuple[RunComparison, ...]:
    """Compare every other trained condition of a cohort with this one, by seed; empty without this one."""
    base = {run.seed: run for run in runs if run.condition == condition}
    others = [run for run in runs if base and run.condition not in (condition, FROZEN)]
    return tuple(
        RunComparison(name, condition, tuple((r, base[r.seed]) for r in others if r.condition == name))
        for name in dict.fromkeys(run.condition for run in others)
    )


def compare_with_frozen(runs: Sequence[RecordedRun]) -> tuple[RunComparison, ...]:
    """Compare every trained condition with Frozen; raises NoTableError where there is nothing to compare."""
    comparisons = compare_with(runs, FROZEN)
    if not comparisons:
        raise NoTableError("the cohort has nothing to compare with frozen")
    return comparisons


def paired_rows(comparisons: Sequence[RunComparison], parts_of: PartsOf) -> tuple[Row, ...]:
    """Build rows of every comparison over its seeds, then of every pair."""
    over, single = [], []
    for comparison in comparisons:
        pairs = [(parts_of(first), parts_of(second)) for first, second in comparison.pairs]
        seeds = [
            {key: tuple(map(difference_cell, first[key], second[key])) for key in first}
            for first, second in pairs
        ]
        over += over_seeds(comparison.name, seeds, mean_cell)
        names = [comparison.of_seed(run.seed) for run, _ in comparison.pairs]
        single += [
            Row(label(name, key), cells)
            for name, parts in zip(names, seeds, strict=True)
            for key, cells in parts.items()
        ]
    return (*over, *single)
