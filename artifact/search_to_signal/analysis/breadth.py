"""Single-seed live comparisons on other tasks and models: directions only (paper, tab. live-breadth)."""

from search_to_signal.analysis.aggregate import label
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.tables.cells import NoTableError, Row, Table
from search_to_signal.analysis.tables.core import SEED_COLUMNS, seed_cells
from search_to_signal.analysis.tables.measures import ALL, differences
from search_to_signal.analysis.tables.paired import COLUMNS, against


def breadth(results: Results) -> Table:
    """Every run of every cell by itself; cells are protocols of their own and are never averaged."""
    rows = tuple(
        Row(label(cell, run.name), seed_cells(run)) for cell, runs in results.breadth.items() for run in runs
    )
    note = "One run each, by task-model cell; no aggregate over cells."
    return Table("breadth", "Directional breadth", "breadth", SEED_COLUMNS, rows, "Cell/run", note)


def breadth_gains(results: Results) -> Table:
    """Online minus Frozen within each cell and seed."""
    rows = tuple(
        Row(label(cell, comparison.of_seed(one.seed)), differences(one, other, ALL))
        for cell, runs in results.breadth.items()
        for comparison in against(runs, "frozen")
        for one, other in comparison.pairs
    )
    if not rows:
        raise NoTableError("no cell has a trained run beside its frozen one")
    note = "First minus second of one seed, by cell; directions only."
    return Table("breadth_gains", "Directions by cell", "breadth", COLUMNS, rows, "Cell/comparison", note)
