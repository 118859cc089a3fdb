"""Evidence layer "directional breadth": single-seed cells, task x model, never pooled with the cohort."""

from itertools import chain

from search_to_signal.base.progress import Task
from search_to_signal.records.layers import BREADTH
from search_to_signal.run.planned_runs import Reproduction, tasks_of
from search_to_signal.run.profile import Profile


def tasks(profile: Profile) -> list[Task]:
    return tasks_of(chain(*profile.cell_runs(BREADTH).values()))


def run(reproduction: Reproduction) -> None:
    """Run every cell; raises RunDirectoryError when there are runs of a cell that the profile lacks."""
    reproduction.run_cells(BREADTH)
