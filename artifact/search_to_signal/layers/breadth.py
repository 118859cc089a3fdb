"""Evidence layer "directional breadth": single-seed cells, task x model, never pooled with the cohort."""

from search_to_signal.layers.cells import run_cells
from search_to_signal.records.layers import BREADTH
from search_to_signal.run.planned_runs import Reproduction


def run(reproduction: Reproduction) -> None:
    """Run every cell; raises RunDirectoryError when there are runs of a cell that the profile lacks."""
    run_cells(reproduction, BREADTH)
