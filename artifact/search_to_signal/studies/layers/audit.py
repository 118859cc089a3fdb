"""Recorded groups for the shared-record audit: Frozen runs on tasks that no live layer has.

Paper, Controlled Evaluation, Scope: the audit spans four tasks, the live layers two. These runs enter the
replay (``normalizer_replay``) and no table of cohort or breadth.
"""

from search_to_signal.records.layers import AUDIT
from search_to_signal.scheduling.run_slots import Reproduction
from search_to_signal.studies.layers.cells import run_cells


def run(asked: Reproduction) -> None:
    """Run every cell; raises RunDirectoryError when there are runs of a cell that the profile lacks."""
    run_cells(asked, AUDIT)
