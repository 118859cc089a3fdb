"""Factorized Validity-Quality: feasibility and scaled quality, added before one joint normalization."""

from dataclasses import dataclass

import numpy as np

from search_to_signal.numerics import Bools, Floats, difference, rms, unit_scaled
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards.base import NUMERICALLY_ZERO, Rewards


@dataclass(frozen=True)
class Factorized:
    """r = v / 2 + q / 2 with v = +1 or -1 for valid or not, and q = (f - b) / RMS over the eligible set.

    Source: paper, eq. factorized-reward, and supplement, Factorized Validity-Quality; D05, D06.
    q is 0 outside the eligible set and where the RMS is at most ``zero_rms`` (in score units; 0.0 is
    the D06 alternative). |q| <= sqrt(number of eligible candidates). Higher is better.
    """

    zero_rms: float = NUMERICALLY_ZERO
    name: str = "factorized"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return components "validity" and "quality", (N, G) each, and half their sum."""
        validity = np.where(groups.valid, 1.0, -1.0)
        quality = scaled_change(groups, groups.eligible, self.zero_rms)
        return Rewards({"validity": validity, "quality": quality}, 0.5 * validity + 0.5 * quality)


def scaled_change(groups: GroupBatch, members: Bools, zero_rms: float = NUMERICALLY_ZERO) -> Floats:
    """(N, G): (f - b) / RMS over the members, (N, G) of the eligible; 0 elsewhere and up to zero_rms."""
    change, unit = unit_scaled(difference(groups.score, groups.best_base, members))
    scale = rms(change, members)
    with np.errstate(over="ignore"):
        present = scale * unit > zero_rms
    return np.divide(change, scale, out=np.zeros_like(change), where=present)
