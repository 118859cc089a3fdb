"""Evidence layer "directional breadth": single-seed cells, task x model, never pooled with the cohort."""

from pathlib import Path

from search_to_signal.errors import RunDirectoryError
from search_to_signal.experiments.cohort import run_all
from search_to_signal.experiments.configuration import Profile, RunConfig
from search_to_signal.experiments.execution import Execution
from search_to_signal.progress import Progress
from search_to_signal.records.manifest import BREADTH, run_directories


def cells(profile: Profile) -> dict[str, list[RunConfig]]:
    """The runs of every cell by the cell's directory name."""
    planned: dict[str, list[RunConfig]] = {}
    for cell in profile.breadth:
        shape = {"problem": cell.problem, "split": cell.split, "model": cell.model, "groups": cell.groups}
        search = profile.search.over(cell.groups)
        for seed in cell.seeds:
            for condition in cell.conditions:
                config = profile.run(condition, seed, layer="breadth", search=search, **shape)
                planned.setdefault(config.cell, []).append(config)
    return planned


def run_breadth(profile: Profile, results: Path, how: Execution, progress: Progress) -> None:
    """Run every cell; raises RunDirectoryError when there are runs of a cell that the profile lacks."""
    out, planned = results / BREADTH, cells(profile)
    for found in out.glob("*") if out.is_dir() else []:
        if found.is_dir() and found.name not in planned and run_directories(found):
            raise RunDirectoryError(f"{found} holds a cell that is not in the profile: move it away")
    run_all({out / name: runs for name, runs in planned.items()}, how, progress)
