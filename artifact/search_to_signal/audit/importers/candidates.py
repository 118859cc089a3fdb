"""What the logs of a search have in common: a group is one candidate."""

import math
from collections.abc import Sequence

from search_to_signal.audit.groups import Assumption
from search_to_signal.audit.importers.rows import Evidence, Group


def candidates(says: str) -> Evidence:
    """One assumption with the numbers that a search's log is read for."""

    def evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
        rows = [row for group in groups for row in group]
        counts = {
            "candidates": len(rows),
            "compared": sum(not math.isnan(row.improvement) for row in rows),
            "improved": sum(row.improvement > 0.0 for row in rows),
            "admitted": sum(row.admitted == 1 for row in rows),
        }
        return (Assumption("candidates", says, counts),)

    return evidence
