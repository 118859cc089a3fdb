"""Evidence layer "directional breadth": single-seed cells, task x model, never pooled with the cohort."""

from pathlib import Path

from search_to_signal.experiments.configuration import Profile, RunConfig
from search_to_signal.experiments.execution import Execution
from search_to_signal.experiments.layers.cells import planned, run_cells
from search_to_signal.progress import Progress
from search_to_signal.records.manifest import BREADTH


def cells(profile: Profile) -> dict[str, list[RunConfig]]:
    """The runs of every cell by the cell's directory name."""
    return planned(profile, "breadth", profile.breadth)


def run_breadth(profile: Profile, results: Path, how: Execution, progress: Progress) -> None:
    """Run every cell; raises RunDirectoryError when there are runs of a cell that the profile lacks."""
    run_cells(results / BREADTH, cells(profile), how, progress)
