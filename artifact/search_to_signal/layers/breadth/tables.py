"""Single-seed cells, task x model, against frozen: directions only (paper, tab. live-breadth)."""

from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.layers import BREADTH
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.tables import measures
from search_to_signal.report.tables.cells import Line, label, table
from search_to_signal.report.tables.core import prompts_of

prompts = prompts_of(BREADTH)


@table(
    "Directional breadth",
    "One run each, by task-model cell; no aggregate over cells.",
    layer=BREADTH,
    label="Cell/run",
)
def breadth(results: Results) -> list[Line]:
    """No cell is averaged with another: directions only."""
    cells = results.breadth.items()
    return [(label(cell, run.name), measures.seed_cells(run)) for cell, runs in cells for run in runs]


def breadth_comparisons(results: Results) -> list[tuple[str, measures.RunComparison]]:
    """Trained conditions minus Frozen by cell; raises NoTableError where no cell has both."""
    cells = results.breadth.items()
    comparisons = [
        (cell, comparison) for cell, runs in cells for comparison in measures.compare_with(runs, FROZEN)
    ]
    if not comparisons:
        raise NoTableError("no cell has a trained run beside its frozen one")
    return comparisons


@table(
    "Directions by cell",
    "First minus second of one seed, by cell; directions only.",
    layer=BREADTH,
    label="Cell/comparison",
)
def breadth_gains(results: Results) -> list[Line]:
    """Online minus Frozen within each cell and seed."""
    return [
        (label(cell, comparison.of_seed(online.seed)), measures.differences(online, frozen))
        for cell, comparison in breadth_comparisons(results)
        for online, frozen in comparison.pairs
    ]
