"""Recorded groups for the shared-record audit: Frozen runs on tasks that no live layer has.

Paper, Controlled Evaluation, Scope: the audit spans four tasks, the live layers two. These runs enter the
replay (``normalizer_replay``) and no table of cohort or breadth.
"""

from pathlib import Path

from search_to_signal.experiments.configuration import Profile, RunConfig
from search_to_signal.experiments.execution import Execution
from search_to_signal.experiments.layers.cells import planned, run_cells
from search_to_signal.progress import Progress
from search_to_signal.records.manifest import AUDIT


def audit_cells(profile: Profile) -> dict[str, list[RunConfig]]:
    """The runs of every cell by the cell's directory name."""
    return planned(profile, "audit", profile.audit)


def run_audit_cells(profile: Profile, results: Path, how: Execution, progress: Progress) -> None:
    """Run every cell; raises RunDirectoryError when there are runs of a cell that the profile lacks."""
    run_cells(results / AUDIT, audit_cells(profile), how, progress)
