"""Which members of CALM's archive count as one, and which a prompt shows. Scores are higher-is-better."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search_to_signal.search.member import Member

EQUAL_WITHIN = 1e-7


def equal(first: float, second: float) -> bool:
    """Whether two heuristics with these scores count as one (HOST.md, point 6)."""
    return abs(first - second) < EQUAL_WITHIN


def holds(archived: NDArray[np.float64], score: float) -> bool:
    """Whether one of the archived scores, (n,), is equal to a score."""
    return bool((np.abs(archived - score) < EQUAL_WITHIN).any())


def bases(archive: Sequence[Member], parents: Sequence[Member]) -> tuple[Member, ...]:
    """The members, as listed, whose stripped code a prompt with these parents shows (HOST.md, Prompts)."""
    shown = {parent.code.strip() for parent in parents}
    return tuple(member for member in archive if member.code.strip() in shown)
