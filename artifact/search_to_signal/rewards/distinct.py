"""Distinct: Factorized without credit for copies of the prompt's bases. Ours, not the paper's."""

from dataclasses import dataclass

import numpy as np

from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards.base import Rewards, same_score_as_base
from search_to_signal.rewards.factorized import scaled_change


@dataclass(frozen=True)
class Distinct:
    """Factorized, with a valid completion that repeats a base of its prompt treated as a failure.

    A completion repeats a base when their canonical code is equal, or their scores differ by less than 1e-7.
    It gets v = -1 and q = 0, and the RMS of q is taken over the other eligible completions. Its reward, -1/2,
    never exceeds the group's mean, since the others' q has a mean of at least -1: no group gives it positive
    advantage. A changed constant is no repetition unless it leaves the score as it was. Higher is better.
    """

    name: str = "distinct"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return components "validity" and "quality", (N, G) each, and half their sum."""
        new = groups.valid & ~(groups.matches_base_code | same_score_as_base(groups))
        validity = np.where(new, 1.0, -1.0)
        quality = scaled_change(groups, groups.eligible & new)
        return Rewards({"validity": validity, "quality": quality}, 0.5 * validity + 0.5 * quality)
