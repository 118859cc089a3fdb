"""Distances of recorded tokens to those that their random numbers draw, and the part that rounding explains.

Sampling divides [0, 1) into intervals, one per token in order of id, as long as the token's probability; the
token whose interval contains the random number is drawn. Other kernels or another precision change logits
slightly, and so the ends of the intervals. Where no logit, divided by the temperature, changes by more than
e, no end moves by more than 2 e in log-odds: with probabilities p and changes d, the odds of a set of tokens
become the sum of p exp(d) over the set, divided by that over the others. Distances are therefore in log-odds,
and one bound applies to every text and position.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

# By the precision of sampling: the largest distance, in log-odds, by which rounding moves the end of an
# interval. It is many times the distance measured in honest bfloat16 runs (docs/performance.md).
BOUNDS = {"float32": 0.01, "bfloat16": 0.5}

# An update that is made again in other bits moves logits once more: Adam's first steps have one size, and the
# sign of a gradient near zero is rounding's.
_BEHIND_OTHER_UPDATES = 2.0

# Rounding changes few of the open positions, and by little: their mean distance, as a fraction of the bound.
_MEAN_FRACTION = 1 / 25

# Sums of float32 probabilities are not more exact than this near 0 and 1.
LEAST = 1e-6


def bound(dtype: str, *, other_updates: bool) -> float:
    """The largest distance that rounding explains in a run, in log-odds.

    ``other_updates`` says whether groups are read behind updates that are made again in other bits.
    """
    return BOUNDS[dtype] * (_BEHIND_OTHER_UPDATES if other_updates else 1.0)


class Distances(NamedTuple):
    """Arrays (tokens,): whether a token's number draws it, and the distance to its interval in log-odds.

    ``log_odds`` is zero for a drawn token, infinite where the interval is no number. ``margin`` is its
    distance to the nearer end, else zero.
    """

    drawn: NDArray[np.bool_]
    log_odds: Numbers
    margin: Numbers


def distances(below: Numbers, above: Numbers, number: Numbers) -> Distances:
    """Return the distances of numbers to intervals ``below <= number < above``; arrays of one shape."""
    drawn = (below <= number) & (number < above)
    low, high, position = (_log_odds(value) for value in (below, above, number))
    inside = np.minimum(position - low, high - position)
    # Shares that are no numbers, of a temperature that logits overflow at say, draw nothing.
    inside = np.where(np.isnan(inside), -np.inf, inside)
    return Distances(drawn, np.where(drawn, 0.0, -inside), np.where(drawn, inside, 0.0))


def _log_odds(probabilities: Numbers) -> Numbers:
    clipped = np.clip(probabilities, LEAST, 1.0 - LEAST)
    log_odds: Numbers = np.log(clipped) - np.log1p(-clipped)
    return log_odds


@dataclass
class Tally:
    """Counts of the tokens of a run or a group.

    How many differ, and the sum (``together``) and maximum of their distances.
    ``open_places`` counts positions that differ, or where a change of ``bound`` would draw another token.
    """

    bound: float
    tokens: int = 0
    unequal: int = 0
    open_places: int = 0
    together: float = 0.0
    farthest: float = 0.0

    def add(self, completion: Distances) -> list[int]:
        """Count a completion's tokens; returns the positions of tokens beyond the bound."""
        self.tokens += len(completion.drawn)
        self.unequal += int((~completion.drawn).sum())
        self.open_places += int((completion.margin < self.bound).sum())
        self.together += float(completion.log_odds.sum())
        self.farthest = max(self.farthest, float(completion.log_odds.max(initial=0.0)))
        return [int(position) for position in np.flatnonzero(completion.log_odds > self.bound)]

    @property
    def allowed(self) -> float:
        """The largest sum of distances that rounding explains."""
        return self.bound * (1.0 + _MEAN_FRACTION * self.open_places)
