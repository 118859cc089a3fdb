"""What another setting would have made of the same rollouts: counted, not guessed."""

from dataclasses import dataclass

import numpy as np

from search_to_signal.audit.distinctions import limits
from search_to_signal.audit.groups import Floats, RewardGroups
from search_to_signal.audit.measuring import greatest


@dataclass(frozen=True)
class AlternativeExtremes:
    """Largest gain and largest advantage under an entry, over the ``groups`` that it takes."""

    groups: int = 0
    gain: float = 0.0
    largest: float = 0.0

    def __add__(self, more: "AlternativeExtremes") -> "AlternativeExtremes":
        groups = self.groups + more.groups
        return AlternativeExtremes(groups, max(self.gain, more.gain), max(self.largest, more.largest))


def alternative(groups: RewardGroups, advantage: Floats) -> AlternativeExtremes:
    """What the advantages (R,) of an entry make of the differences of rewards."""
    least, most = limits(groups, advantage)
    low, high = limits(groups, groups.reward)
    extent = high - low
    gain = np.divide(most - least, extent, out=np.full(len(extent), np.nan), where=extent > 0)
    largest = np.fmax(np.abs(least), np.abs(most))
    return AlternativeExtremes(int(np.isfinite(largest).sum()), greatest(gain), greatest(largest))
