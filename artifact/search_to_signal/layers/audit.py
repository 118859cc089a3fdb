"""Recorded groups for the shared-record audit: Frozen runs on tasks that no live layer has.

Paper, Controlled Evaluation, Scope: the audit covers four tasks, the live layers two. The replay
(``normalizer_replay``) reads these runs; the tables of cohort and breadth do not.
"""

from search_to_signal.layers.cells import run_cells
from search_to_signal.records.layers import AUDIT
from search_to_signal.run.planned_runs import Reproduction


def run(reproduction: Reproduction) -> None:
    """Run every cell; raises RunDirectoryError when there are runs of a cell that the profile lacks."""
    run_cells(reproduction, AUDIT)
