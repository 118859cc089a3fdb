"""What the logs of a search have in common: a group is one candidate."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from search_to_signal.audit.groups import Assumption
from search_to_signal.audit.importers.rows import Group, Row

BEST_BEFORE = "improvement is over the best score before the candidate: the log names no parent"


def over_the_best(rows: Iterable[Row], best: float = -math.inf) -> Iterator[Row]:
    """Candidates in order with their improvement over the best finite score before, ``best`` at first."""
    for row in rows:
        compared = math.isfinite(best) and math.isfinite(row.reward)
        yield replace(row, improvement=row.reward - best) if compared else row
        best = max(best, row.reward) if math.isfinite(row.reward) else best


def evidence(key: str, says: str, groups: Sequence[Group]) -> tuple[Assumption, ...]:
    """One assumption with the numbers that a search's log is read for."""
    rows = [row for group in groups for row in group]
    counts = {
        "candidates": len(rows),
        "compared": sum(not math.isnan(row.improvement) for row in rows),
        "improved": sum(row.improvement > 0.0 for row in rows),
        "admitted": sum(row.admitted == 1 for row in rows),
    }
    return (Assumption(key, says, counts),)
