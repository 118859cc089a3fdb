"""Audit of anybody's run: its rewards as groups, from the logs that the framework wrote.

>>> from search_to_signal import audit
>>> found = audit.audit(audit.of_arrays([0, 0, 0, 1e-5], sizes=[4]), normalizer="verl-grpo")
>>> found.counts["amplified"]
1

``of_frame`` takes a DataFrame. ``read`` gives the groups of a log in batches, which ``audit`` takes as they
come; ``conclusions`` puts what was found into sentences, ``text`` into a printed report, ``write`` into
files. ``normalizers`` are the entries of the atlas by name.
"""

from search_to_signal.audit.atlas import entries as normalizers
from search_to_signal.audit.conclusions import conclusions
from search_to_signal.audit.findings import Findings, audit
from search_to_signal.audit.groups import RewardGroups, of_arrays, of_frame, of_outcomes
from search_to_signal.audit.importers import read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.report import text, write

__all__ = [
    "Findings",
    "ReadOptions",
    "RewardGroups",
    "audit",
    "conclusions",
    "normalizers",
    "of_arrays",
    "of_frame",
    "of_outcomes",
    "read",
    "text",
    "write",
]
