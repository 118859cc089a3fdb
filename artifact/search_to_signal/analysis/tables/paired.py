"""Within-seed differences: two runs of one seed at a time, never pools (paper, fig. paired-effects)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from search_to_signal.analysis.aggregate import (
    Parts,
    PartsOf,
    count_directions,
    difference_cell,
    label,
    mean_cell,
    over_seeds,
    seed_numbers,
)
from search_to_signal.analysis.comparable import require_comparable
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import NoTableError, Row, Table
from search_to_signal.analysis.tables.measures import ALL

COLUMNS = tuple(measure.change for measure in ALL)
DIRECTIONS = "Seeds in which the first is better (strictly above), equal (to the last bit) and worse."


@dataclass(frozen=True)
class Comparison:
    """Pairs of runs, first minus second, one per seed; raises as require_comparable does."""

    first: str
    second: str
    pairs: tuple[tuple[RecordedRun, RecordedRun], ...]

    def __post_init__(self) -> None:
        for one, other in self.pairs:
            require_comparable(one, other)

    @property
    def name(self) -> str:
        """As rows of tables call it."""
        return f"{self.first} minus {self.second}"

    def of_seed(self, seed: int) -> str:
        """Its row for one seed."""
        return f"{self.first}-s{seed} minus {self.second}-s{seed}"


def against(runs: Sequence[RecordedRun], condition: str) -> tuple[Comparison, ...]:
    """Every other trained condition of a cohort minus this one, seed by seed.

    Raises NoTableError where the cohort has no such condition, or no other.
    """
    base = {run.seed: run for run in runs if run.condition == condition}
    names = dict.fromkeys(run.condition for run in runs if run.condition not in (condition, "frozen"))
    if not base or not names:
        raise NoTableError(f"the cohort has nothing to compare with {condition}")
    return tuple(
        Comparison(name, condition, tuple((r, base[r.seed]) for r in runs if r.condition == name))
        for name in names
    )


def paired_rows(comparisons: Sequence[Comparison], parts_of: PartsOf) -> tuple[Row, ...]:
    """Rows of every comparison over its seeds, then of every pair."""
    seeds = [
        (c, [(one.seed, _differences(parts_of, one, other)) for one, other in c.pairs]) for c in comparisons
    ]
    rows = [row for c, parts in seeds for row in over_seeds(c.name, [p for _, p in parts], mean_cell)]
    rows += [
        Row(label(c.of_seed(seed), key), cells)
        for c, parts in seeds
        for seed, part in parts
        for key, cells in part.items()
    ]
    return tuple(rows)


def measured(run: RecordedRun) -> Parts:
    """Every measure of a run."""
    return {"": tuple(measure.cell(run) for measure in ALL)}


def comparisons(results: Results) -> tuple[Comparison, ...]:
    """Each trained condition minus Frozen, and each minus Native where the cohort has it."""
    runs = results.cohort
    found = against(runs, "frozen")
    others = {run.condition for run in runs} - {"frozen", "native"}
    has_native = any(run.condition == "native" for run in runs)
    return (*found, *against(runs, "native")) if others and has_native else found


def paired(results: Results) -> Table:
    """Same-seed differences of every measure of the live cohort."""
    found = comparisons(results)
    note = "First minus second, seed by seed; mean ± sample standard deviation over seeds."
    note = f"{note} {few_seeds(len(c.pairs) for c in found)}"
    rows = paired_rows(found, measured)
    return Table("paired", "Paired differences", "cohort", COLUMNS, rows, "Comparison", note)


def paired_signs(results: Results) -> Table:
    """In how many seeds the first condition is above, equal to and below the second, measure by measure."""
    found = comparisons(results)
    return Table(
        "paired_signs",
        "Directions of paired differences",
        "cohort",
        COLUMNS,
        signs(found),
        "Comparison/direction",
        f"{DIRECTIONS} {few_seeds(len(c.pairs) for c in found)}",
    )


def few_seeds(numbers: Iterable[int]) -> str:
    """How many seeds the comparisons have, and the least p that a test on so few can give.

    Of the 2^n ways to flip the signs of n differences, the one with all in one direction and its mirror
    image are the most extreme: a two-sided sign-flipping test gives at least 2/2^n.
    """
    found = sorted(set(numbers))
    least = " or ".join(f"{2.0 / 2**n:.3g}" for n in found)
    return f"With {seed_numbers(found)} a two-sided sign-flipping test cannot give p below {least}."


def signs(comparisons: Sequence[Comparison]) -> tuple[Row, ...]:
    """Three rows per comparison: the seeds with a positive difference, with none, and with a negative one."""
    rows = []
    for comparison in comparisons:
        seeds = [_differences(measured, one, other)[""] for one, other in comparison.pairs]
        columns = [count_directions(cells) for cells in zip(*seeds, strict=True)]
        rows += [Row(label(comparison.name, k), tuple(column[k] for column in columns)) for k in columns[0]]
    return tuple(rows)


def _differences(parts_of: PartsOf, first: RecordedRun, second: RecordedRun) -> Parts:
    one, other = parts_of(first), parts_of(second)
    return {
        key: tuple(difference_cell(a, b) for a, b in zip(one[key], other[key], strict=True)) for key in one
    }
