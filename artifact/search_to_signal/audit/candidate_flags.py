"""What became of single completions: rows twice, and of a search its improvements, admissions, failures."""

import numpy as np

from search_to_signal.audit.group_flags import Bools
from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.repeats import doubled_flags

MEANING = {
    "compared": "candidates with a score to compare with",
    "improved": "candidates better than what they are compared with",
    "admitted": "candidates that the search kept",
    "admitted_no_better": "candidates kept that are no better than what they are compared with",
    "improved_not_admitted": "candidates that are better and were not kept",
    "doubled": "completions equal to an earlier one of their group in all that is read of them",
    "seen_before": "candidates whose text stood in the log before",
    "failed": "candidates whose evaluation ended in error, timeout or failure",
    "failed_and_scored": "failed candidates with a score above 0",
    "failed_and_improved": "failed candidates that count as an improvement",
    "failed_and_admitted": "failed candidates that the search kept",
}
_FAILED = ("timeout", "error", "failed", "incorrect", "runtime_failure", "invalid")


def candidate_flags(groups: RewardGroups) -> dict[str, Bools]:
    """(R,) each, by the names of MEANING."""
    # An infinite score is compared, as the search compares it.
    compared, better = ~np.isnan(groups.improvement), groups.improvement > 0
    kept, dropped = groups.admitted == 1, groups.admitted == 0
    ends = np.array([name.startswith(_FAILED) for name in groups.status.names], dtype=np.bool_)
    failed = ends[groups.status.code]
    return {
        "compared": compared,
        "improved": better,
        "admitted": kept,
        "admitted_no_better": kept & compared & ~better,
        "improved_not_admitted": dropped & better,
        "doubled": doubled_flags(groups),
        "failed": failed,
        "failed_and_scored": failed & (groups.reward > 0),
        "failed_and_improved": failed & better,
        "failed_and_admitted": failed & kept,
    }
