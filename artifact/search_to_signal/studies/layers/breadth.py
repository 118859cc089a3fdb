"""Evidence layer "directional breadth": single-seed cells, task x model, never pooled with the cohort."""

from search_to_signal.records.layers import BREADTH
from search_to_signal.scheduling.planned_runs import Reproduction
from search_to_signal.studies.layers.cells import run_cells


def run(reproduction: Reproduction) -> None:
    """Run every cell; raises RunDirectoryError when there are runs of a cell that the profile lacks."""
    run_cells(reproduction, BREADTH)
