"""Audit of anybody's run: its rewards as groups, from the logs that the framework wrote.

>>> from search_to_signal import audit
>>> found = audit.audit(audit.of_arrays([0, 0, 0, 1e-5], sizes=[4]), normalizer="verl-grpo")
>>> found.counts["amplified"]
1

``of_frame`` takes a DataFrame. ``read`` gives the groups of a log in batches, which ``audit`` takes as they
come; ``verdicts`` puts what was found into sentences, ``text`` into a printed report, ``write`` into files.
``normalizers`` are the entries of the atlas by name.
"""

from search_to_signal.audit.atlas import entries as normalizers
from search_to_signal.audit.findings import audit
from search_to_signal.audit.found import Findings
from search_to_signal.audit.frames import of_frame
from search_to_signal.audit.groups import RewardGroups, of_arrays, of_outcomes
from search_to_signal.audit.importers import read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.verdicts import verdicts
from search_to_signal.audit.writing import text, write

__all__ = [
    "Findings",
    "ReadOptions",
    "RewardGroups",
    "audit",
    "normalizers",
    "of_arrays",
    "of_frame",
    "of_outcomes",
    "read",
    "text",
    "verdicts",
    "write",
]
