"""What a comparison of two hosts found."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-9
"""Relative; above it two scores are two scores."""


class Verdict(Enum):
    """How far two answers agree."""

    EXACT = "bit for bit"
    CLOSE = "within tolerance"
    DIFFERS = "differs"
    UNKNOWN = "not compared"


@dataclass(frozen=True)
class Finding:
    """One compared thing; ``detail`` says by how much, or why not."""

    subject: str
    verdict: Verdict
    detail: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the released host does here what ours does."""
        return self.verdict in (Verdict.EXACT, Verdict.CLOSE)


def numbers(subject: str, ours: Sequence[float] | None, theirs: Sequence[float] | None) -> Finding:
    """Compare two rows of numbers; a failure is None. Rows of other length compare by their last entry."""
    if ours is None or theirs is None:
        same = ours is None and theirs is None
        return Finding(subject, Verdict.EXACT if same else Verdict.DIFFERS, f"ours {ours}, theirs {theirs}")
    if len(ours) != len(theirs):
        ours, theirs = ours[-1:], theirs[-1:]
    return arrays(subject, np.array(ours, dtype=np.float64), np.array(theirs, dtype=np.float64))


def arrays(subject: str, ours: NDArray[Any], theirs: NDArray[Any]) -> Finding:
    """Compare two arrays of one shape as float64."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    if ours.tobytes() == theirs.tobytes():
        return Finding(subject, Verdict.EXACT)
    with np.errstate(invalid="ignore"):
        gap = float(np.max(np.abs(ours - theirs) / np.maximum(np.abs(ours), 1.0)))
    verdict = Verdict.CLOSE if gap <= TOLERANCE else Verdict.DIFFERS
    return Finding(subject, verdict, f"largest relative gap {gap:.3g}")


def things(subject: str, ours: object, theirs: object) -> Finding:
    """Compare two things that are equal or not."""
    if ours == theirs:
        return Finding(subject, Verdict.EXACT)
    return Finding(subject, Verdict.DIFFERS, f"ours {ours}, theirs {theirs}")
