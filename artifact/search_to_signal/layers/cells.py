"""Cells, task x model: runs in a directory per cell of their layer, which are never pooled."""

from collections.abc import Sequence

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.layers import AUDIT, BREADTH
from search_to_signal.records.manifest import run_directories
from search_to_signal.run.config import AuditCell, BreadthCell, RunConfig
from search_to_signal.run.planned_runs import Reproduction
from search_to_signal.run.profile import Profile


def planned(profile: Profile, layer: str) -> dict[str, list[RunConfig]]:
    """Return the runs of every cell of a layer, by the cell's directory name."""
    cells: dict[str, Sequence[BreadthCell | AuditCell]] = {BREADTH: profile.breadth, AUDIT: profile.audit}
    runs: dict[str, list[RunConfig]] = {}
    for cell in cells[layer]:
        shape = {"problem": cell.problem, "split": cell.split, "model": cell.model, "groups": cell.groups}
        search = profile.search.over(cell.groups)
        for seed in cell.seeds:
            for condition in cell.conditions:
                config = profile.run(condition, seed, layer=layer, search=search, **shape)
                runs.setdefault(config.cell, []).append(config)
    return runs


def run_cells(reproduction: Reproduction, layer: str) -> None:
    """Run every cell; raises RunDirectoryError when there are runs of a cell that the profile lacks."""
    out, runs = reproduction.results / layer, planned(reproduction.profile, layer)
    for folder in out.glob("*") if out.is_dir() else []:
        if folder.is_dir() and folder.name not in runs and run_directories(folder):
            raise RunDirectoryError(f"{folder} is a cell that the profile does not have: move it away")
    reproduction.run_all({out / name: configs for name, configs in runs.items()})
