"""How far recorded tokens lie from those that their numbers draw, and what rounding explains of it.

A token is drawn where its share of the whole, tokens in order of id, holds the number of the run's stream.
Read with other kernels, or in another precision, logits differ a little, and the ends of the shares move.
Where no logit, divided by the temperature, moves by more than e, no end moves by more than 2 e in log-odds:
with shares p and changes d, the odds of a set become the sum of p exp(d) over it by that over the others. So
distances are in log-odds, and one bound holds for every text and place.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

# By the precision that was sampled in: how far, in log-odds, rounding moves the end of a share at most. It is
# many times what was measured of honest bfloat16 (docs/performance.md).
BOUNDS = {"float32": 0.01, "bfloat16": 0.5}

# Of the places that rounding might decide it decides few, by little: what they may lie apart in the mean.
_MEAN = 1 / 25

# Sums of shares in float32 are no better known at either end.
LEAST = 1e-6


class Distances(NamedTuple):
    """Of every token (tokens,): whether its number draws it, else how far that is from its interval.

    ``log_odds`` is zero where it is drawn; ``margin`` is then to the nearer end of the interval, else zero.
    """

    drawn: NDArray[np.bool_]
    log_odds: Numbers
    margin: Numbers


def distances(below: Numbers, above: Numbers, number: Numbers) -> Distances:
    """The distances of numbers to intervals ``below <= number < above``; arrays of one shape."""
    drawn = (below <= number) & (number < above)
    low, high, at = (_log_odds(value) for value in (below, above, number))
    inside = np.minimum(at - low, high - at)
    return Distances(drawn, np.where(drawn, 0.0, -inside), np.where(drawn, inside, 0.0))


def _log_odds(shares: Numbers) -> Numbers:
    kept = np.clip(shares, LEAST, 1.0 - LEAST)
    found: Numbers = np.log(kept) - np.log1p(-kept)
    return found


@dataclass
class Tally:
    """The tokens that were read of a run: how many differ, and by how much together and at most.

    ``open_places`` are those where a change of ``bound`` would draw another token, or which differ.
    """

    bound: float
    tokens: int = 0
    unequal: int = 0
    open_places: int = 0
    together: float = 0.0
    farthest: float = 0.0

    def add(self, found: Distances) -> list[int]:
        """Take note of a completion; the places of tokens that lie beyond the bound."""
        self.tokens += len(found.drawn)
        self.unequal += int((~found.drawn).sum())
        self.open_places += int((found.margin < self.bound).sum())
        self.together += float(found.log_odds.sum())
        self.farthest = max(self.farthest, float(found.log_odds.max(initial=0.0)))
        return [int(place) for place in np.flatnonzero(found.log_odds > self.bound)]

    @property
    def allowed(self) -> float:
        """How far rounding lets the differing tokens lie together."""
        return self.bound * (1.0 + _MEAN * self.open_places)
