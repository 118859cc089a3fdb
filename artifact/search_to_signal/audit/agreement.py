"""How far an entry's advantages agree with others of the same rollouts."""

import math
from dataclasses import dataclass

import numpy as np

from search_to_signal.audit.distinctions import ZERO, GroupFacts, turned
from search_to_signal.audit.groups import Floats, RewardGroups

# Unit roundoff of float32, and how many of them a few operations may cost.
_ROUNDING = 4 * 2.0**-24


@dataclass(frozen=True)
class Place:
    """Where to look: file, step, and line (from 1) or row (from 0) of its first completion."""

    source: str
    step: int
    position: int


@dataclass(frozen=True)
class Difference:
    """The first row at which two advantages differ beyond rounding."""

    place: Place
    logged: float
    computed: float


@dataclass(frozen=True)
class Agreement:
    """Sums over groups; adding two joins their groups, in order.

    ``rows`` have a reference; of those ``missing`` get no number from the entry, ``equal`` the same bits and
    ``near`` the same to float32 rounding. Of the ``groups`` that the entry takes, ``turned`` are ordered
    differently, and in ``flipped`` an advantage changes its sign.
    """

    rows: int = 0
    missing: int = 0
    equal: int = 0
    near: int = 0
    groups: int = 0
    turned: int = 0
    flipped: int = 0
    dot: float = 0.0
    own: float = 0.0
    other: float = 0.0
    error: float = 0.0
    first: Difference | None = None

    def __add__(self, more: "Agreement") -> "Agreement":
        sums = {
            name: getattr(self, name) + getattr(more, name)
            for name in self.__dataclass_fields__
            if name not in ("error", "first")
        }
        return Agreement(**sums, error=max(self.error, more.error), first=self.first or more.first)

    @property
    def explains(self) -> bool:
        """Every reference is what the entry gives, to float32 rounding."""
        return 0 < self.rows == self.near

    @property
    def exact(self) -> bool:
        """Bit for bit."""
        return 0 < self.rows == self.equal

    @property
    def cosine(self) -> float | None:
        """Of all advantages as one vector; None where one of them is 0, or too large to square."""
        norm = math.sqrt(self.own * self.other)
        return max(-1.0, min(1.0, self.dot / norm)) if 0 < norm < math.inf else None

    @property
    def distance(self) -> float:
        """Squared distance of the two vectors; infinite where one of them is too large to square."""
        distance = self.own + self.other - 2.0 * self.dot
        return math.inf if math.isnan(distance) else distance

    @property
    def size(self) -> float | None:
        """Length of the entry's vector over that of the reference; None where that is 0, or too large."""
        known = self.own < math.inf and 0 < self.other < math.inf
        return math.sqrt(self.own / self.other) if known else None


def agreement(groups: RewardGroups, reference: Floats, computed: Floats, slack: Floats) -> Agreement:
    """Compare the advantages (R,) of an entry with a reference (R,), whose ``slack`` (R,) is rounding."""
    asked, given = np.isfinite(reference), np.isfinite(computed)
    both = asked & given
    gap = np.where(both, np.abs(computed - reference), 0.0)
    near = both & (gap <= slack)
    starts = groups.offsets[:-1]
    taken = np.logical_and.reduceat(both, starts)
    signs = (reference * computed < 0) & (np.minimum(np.abs(reference), np.abs(computed)) > ZERO)
    own, other = np.where(both, computed, 0.0), np.where(both, reference, 0.0)
    return Agreement(
        rows=int(asked.sum()),
        missing=int((asked & ~given).sum()),
        equal=int((both & (reference == computed)).sum()),
        near=int(near.sum()),
        groups=int(taken.sum()),
        turned=int((turned(groups, reference, computed) & taken).sum()),
        flipped=int((np.logical_or.reduceat(signs, starts) & taken).sum()),
        dot=float(own @ other),
        own=float(own @ own),
        other=float(other @ other),
        error=float(gap.max(initial=0.0)),
        first=_first(groups, reference, computed, both & ~near),
    )


def rounding(groups: RewardGroups, facts: GroupFacts) -> Floats:
    """What float32 may cost, (R,): rounding of the advantage, and that of the reward, amplified."""
    low = np.where(np.isfinite(groups.reward), np.abs(groups.reward), 0.0)
    size = np.maximum.reduceat(low, groups.offsets[:-1])
    slack: Floats = np.repeat(
        _ROUNDING * (np.nan_to_num(facts.largest) + np.nan_to_num(facts.gain) * size), groups.sizes
    )
    return slack


def _first(groups: RewardGroups, reference: Floats, computed: Floats, where: Floats) -> Difference | None:
    rows = np.flatnonzero(where)
    if not len(rows):
        return None
    row = int(rows[0])
    place = place_of(groups, int(groups.group[row]), row)
    return Difference(place, float(reference[row]), float(computed[row]))


def place_of(groups: RewardGroups, group: int, row: int | None = None) -> Place:
    """Where a group begins, or one of its rows stands."""
    at = int(groups.offsets[group]) if row is None else row
    return Place(groups.source, int(groups.step[group]), int(groups.position[at]))
