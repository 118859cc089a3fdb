"""Search-Exposure Residual: what parent selection adds to immediate quality."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from search_to_signal.numerics import Bools, Floats, centred, difference, rms, unit_scaled
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards.base import NUMERICALLY_ZERO, Rewards, require, severity

EPSILON = NUMERICALLY_ZERO


@dataclass(frozen=True)
class SearchExposure:
    """r = a^V + a^Q + a^S: typed validity, quality, and the exposure-weighted quality orthogonal to it.

    Source: paper, eq. search-residual, and supplement, Search-Exposure Residual; D05, D06, D13 to D15, D27.
    With ctr and RMS over the eligible set, q = ctr(Delta) / (RMS(ctr Delta) + eps), m = ctr(rho Delta),
    s = m - <m, q> / (<q, q> + eps) q, and a^S = s / (RMS(ctr Delta) + 2 RMS(s) + eps), whose RMS is below
    1/2. A channel is 0 outside its set and where its own centred RMS is at most eps = 1e-8 (score units).

    ``validity``  D14: severities of the failures and +1, or -1 and +1
    ``scale``     D27: what the residual is compared with. ``centred``, RMS(ctr Delta) as in the
                  equation, is 0 among equal scores, where any residual comes out at RMS 1/2; ``plain``,
                  RMS(Delta), keeps RMS(a^S) <= RMS(s) / RMS(Delta); ``centred_or_zero`` is the equation
                  where the quality channel is not zero, and 0 elsewhere
    """

    validity: Literal["typed", "binary"] = "typed"
    scale: Literal["centred", "plain", "centred_or_zero"] = "centred"
    name: str = "search_exposure"
    reads_exposure: ClassVar[bool] = True

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return components "validity", "quality" and "search", (N, G) each, and their sum.

        Raises IllFormedGroupError when an eligible candidate lacks its exposure.
        """
        quality, search = self._quality_and_search(groups)
        parts = {"validity": self._validity(groups), "quality": quality, "search": search}
        return Rewards(parts, parts["validity"] + quality + search)

    def _validity(self, groups: GroupBatch) -> Floats:
        everyone = np.ones(groups.outcome.shape, dtype=np.bool_)
        typed = self.validity == "typed"
        level = severity(groups, valid=1.0) if typed else np.where(groups.valid, 1.0, -1.0)
        return _channel(centred(level, everyone), everyone, np.ones((len(level), 1)))

    def _quality_and_search(self, groups: GroupBatch) -> tuple[Floats, Floats]:
        eligible = groups.eligible
        require(
            ~(eligible & np.isnan(groups.exposure)),
            "an eligible completion has no exposure",
            "record the one-step parent exposure (D13), or use a mapping that does not read it",
        )
        change, unit = unit_scaled(difference(groups.score, groups.best_base, eligible))
        direction = centred(change, eligible)
        quality = _channel(direction, eligible, unit)
        weighted = _exposed(np.where(eligible, groups.exposure, 0.0), change, eligible)
        along = (weighted * quality).sum(axis=1, keepdims=True)
        squared = (quality * quality).sum(axis=1, keepdims=True)
        residual = centred(weighted - along / (squared + EPSILON) * quality, eligible)
        reference = change if self.scale == "plain" else direction
        search = _bounded(residual, rms(reference, eligible), eligible, unit)
        kept = self.scale != "centred_or_zero" or quality.any(axis=1, keepdims=True)
        return quality, np.where(kept, search, 0.0)


def _exposed(exposure: Floats, change: Floats, members: Bools) -> Floats:
    """ctr(exposure * change), split so that equal exposures leave no rounding from a large common change."""
    common = np.where(members, change, np.inf).min(axis=1, keepdims=True)
    common = np.where(np.isinf(common), 0.0, common)
    result: Floats = centred(exposure * (change - common), members) + common * centred(exposure, members)
    return result


def _channel(direction: Floats, members: Bools, unit: Floats) -> Floats:
    """direction / (RMS + eps), 0 where the RMS is at most eps; direction is in units of ``unit``."""
    scale = rms(direction, members)
    with np.errstate(divide="ignore", over="ignore"):
        eps = EPSILON / unit
    return np.divide(direction, scale + eps, out=np.zeros_like(direction), where=scale > eps)


def _bounded(residual: Floats, reference: Floats, members: Bools, unit: Floats) -> Floats:
    """residual / (reference + 2 RMS of residual + eps), all in units of ``unit``; RMS below 1/2."""
    scale = rms(residual, members)
    with np.errstate(divide="ignore", over="ignore"):
        eps = EPSILON / unit
    return np.divide(residual, reference + 2.0 * scale + eps, out=np.zeros_like(residual), where=scale > eps)
