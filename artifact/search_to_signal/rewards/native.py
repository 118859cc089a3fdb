"""Native CALM: the released piecewise reward."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from search_to_signal.numerics import Floats
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards.base import Rewards, same_score_as_base, severity

SMALLEST_DELTA = 1e-10
DEGRADATION = 3.0 / 8.0
COPY = -(1.0 / 5.0 + 2.0 / 5.0)
"""The paper's -3/5 as the host adds it up, one unit in the last place below (HOST.md, point 23)."""


@dataclass(frozen=True)
class Native:
    """Typed failures and a nonlinear comparison with the best prompt base b.

    Source: paper, Reward Constructions, and supplement, Native CALM branch semantics; D01 to D05.
    A failure gets its severity. A valid candidate without comparator gets 0. Otherwise, with
    delta = clip(|f - b| / min(|f|, |b|), 1e-10, 1): improvement 1 + delta, equality 0, a degradation
    identified as a prompt base -3/5, any other degradation -3 delta / 8. Higher is better.
    ``copies`` says how a base is identified (D02): by a score closer than 1e-7, or by canonical code.
    """

    copies: Literal["score", "code"] = "score"
    name: str = "native"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return components "failure" and "comparison", (N, G) each, and their sum."""
        failure = severity(groups, valid=0.0)
        comparison = self._comparison(groups)
        return Rewards({"failure": failure, "comparison": comparison}, failure + comparison)

    def _comparison(self, groups: GroupBatch) -> Floats:
        base = groups.best_base[:, None]
        # NaN marks a failed candidate and an absent comparator; every comparison with it is false.
        improves, degrades = groups.score > base, groups.score < base
        delta = relative_change(groups.score, base)
        copied = degrades & (
            same_score_as_base(groups) if self.copies == "score" else groups.matches_base_code
        )
        worse = np.where(copied, COPY, -DEGRADATION * delta)
        return np.where(improves, 1.0 + delta, np.where(degrades, worse, 0.0))


def relative_change(score: Floats, base: Floats) -> Floats:
    """delta(f, b) in [1e-10, 1]; 1 where min(|f|, |b|) is 0 (D03), NaN where either is absent."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = np.abs(score - base) / np.minimum(np.abs(score), np.abs(base))
    delta: Floats = np.clip(ratio, SMALLEST_DELTA, 1.0)
    return delta
