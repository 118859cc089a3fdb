"""Questions to the archive, a tuple of members in listing order. Scores are higher-is-better."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search_to_signal.search.state import Member

EQUAL_WITHIN = 1e-7


def equal(first: float, second: float) -> bool:
    """Whether two heuristics with these scores count as one (HOST.md, point 6)."""
    return abs(first - second) < EQUAL_WITHIN


def scores(archive: Sequence[Member]) -> NDArray[np.float64]:
    """(n,) scores in listing order."""
    return np.array([member.score for member in archive], dtype=np.float64)


def holds(archived: NDArray[np.float64], score: float) -> bool:
    """Whether one of the archived scores, (n,), is equal to a score."""
    return bool((np.abs(archived - score) < EQUAL_WITHIN).any())


def frontier(archive: Sequence[Member]) -> float | None:
    """The best score, or None for an empty archive."""
    return max((member.score for member in archive), default=None)


def archive_gap(archive: Sequence[Member], score: float) -> float | None:
    """Distance to the nearest archived score, or None for an empty archive."""
    return float(np.abs(scores(archive) - score).min()) if archive else None


def bases(archive: Sequence[Member], parents: Sequence[Member]) -> tuple[Member, ...]:
    """The members, as listed, whose stripped code a prompt with these parents shows (HOST.md, Prompts)."""
    shown = {parent.code.strip() for parent in parents}
    return tuple(member for member in archive if member.code.strip() in shown)
