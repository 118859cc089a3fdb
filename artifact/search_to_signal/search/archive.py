"""Questions to an archive, a sequence of members. Scores are higher-is-better."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search_to_signal.search.member import Member


def scores(archive: Sequence[Member]) -> NDArray[np.float64]:
    """(n,) scores in order of the archive."""
    return np.array([member.score for member in archive], dtype=np.float64)


def frontier(archive: Sequence[Member]) -> float | None:
    """The best score, or None for an empty archive."""
    return max((member.score for member in archive), default=None)


def archive_gap(archive: Sequence[Member], score: float) -> float | None:
    """Distance to the nearest archived score, or None for an empty archive."""
    return float(np.abs(scores(archive) - score).min()) if archive else None
