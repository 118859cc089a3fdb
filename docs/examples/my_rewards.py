"""A mapping: half a point for a valid completion, and half for one that beats the best base of its prompt."""

from dataclasses import dataclass

import numpy as np

from search_to_signal.credit import Rewards
from search_to_signal.records.groups import GroupBatch


@dataclass(frozen=True)
class Improver:
    """r = v / 2 + g / 2 with v = 1 for valid, g = 1 for a score above the best base; higher is better."""

    name: str = "improver"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Return the components "validity" and "gain", (N, G) each, and half their sum."""
        with np.errstate(invalid="ignore"):  # a failure has no score, a creation no base: NaN compares false
            better = groups.valid & (groups.score > groups.best_base[:, None])
        validity, gain = groups.valid.astype(float), better.astype(float)
        return Rewards({"validity": validity, "gain": gain}, 0.5 * validity + 0.5 * gain)


improver = Improver()
