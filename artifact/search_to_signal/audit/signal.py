"""What a trainer's update is made of: measured on a batch, kept as sums that add up over batches.

The numbers of two batches add up: a run is summed step by step, or a step is
logged while it trains. The share of a component is the advantage's variance as a sum of covariances with the
weighted components, within groups, each group at its own slope.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import or_

import numpy as np

from search_to_signal.audit.flags import ZERO, Bools, GroupFlags, group_flags, limits
from search_to_signal.audit.groups import Floats, RewardGroups, sorted_within
from search_to_signal.base.numerics import GREATEST, Sums

# Different rewards of a run that are counted.
_LEVELS = 64
# A component varies in a group where it moves by more than this share of its size.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Ties:
    """Groups of equal rewards, at the least and at the greatest of these; adding keeps the wider range."""

    low: float = math.inf
    at_low: int = 0
    high: float = -math.inf
    at_high: int = 0

    def __add__(self, more: "Ties") -> "Ties":
        low, high = min(self.low, more.low), max(self.high, more.high)
        return Ties(low, self.wrong(low) + more.wrong(low), high, self.right(high) + more.right(high))

    def wrong(self, low: float) -> int:
        """Groups of which every reward is ``low``, where that is the least."""
        return self.at_low if self.low == low else 0

    def right(self, high: float) -> int:
        """Groups of which every reward is ``high``, where that is the greatest."""
        return self.at_high if self.high == high else 0


@dataclass(frozen=True)
class ComponentSums(Sums):
    """Of a component: groups in which it ``varied``, and ``against`` those of them in which the completions
    for which it adds more, its weight included, get the lower advantages; ``carried`` is its part of the
    sum of squares."""

    varied: int = 0
    against: int = 0
    carried: float = 0.0


@dataclass(frozen=True)
class Levels:
    """How often each finite reward occurs, by its value; None for more different ones than are counted."""

    counts: Mapping[float, int] | None = field(default_factory=dict)

    def __add__(self, more: "Levels") -> "Levels":
        if self.counts is None or more.counts is None:
            return Levels(None)
        both = Counter(self.counts) + Counter(more.counts)
        return Levels(both if len(both) <= _LEVELS else None)

    def flat_share(self, size: int) -> float | None:
        """Share of groups of a size that would be flat if all completions were drawn from these rewards."""
        if not self.counts:
            return None
        whole = sum(self.counts.values())
        return float(sum((count / whole) ** size for count in self.counts.values()))


@dataclass(frozen=True)
class LengthTie(Sums):
    """Sums within groups for the correlation of advantage and tokens, over ``rows`` that have both."""

    rows: int = 0
    both: float = 0.0
    advantage: float = 0.0
    tokens: float = 0.0

    @property
    def correlation(self) -> float | None:
        """Above 0 longer completions of a group get the higher advantages; None where either never varies."""
        norm = math.sqrt(self.advantage * self.tokens)
        return self.both / norm if 0 < norm < math.inf else None


def _by_name(
    first: Mapping[str, ComponentSums], second: Mapping[str, ComponentSums]
) -> dict[str, ComponentSums]:
    none = ComponentSums()
    return {name: first.get(name, none) + second.get(name, none) for name in dict.fromkeys((*first, *second))}


@dataclass(frozen=True)
class SignalSums(Sums):
    """Sums over groups; adding two joins their groups.

    ``compared`` groups have two and more rewards, ``flat`` of them equal ones; ``dead`` teach nothing.
    ``credited`` groups are flat and get an advantage all the same. ``taught`` completions have an advantage
    (``GroupFlags``), ``nan`` one that is NaN or infinite; ``unscored`` have no finite reward. Of groups that
    are not flat ``left_out`` do not enter the loss; of the positive ``credit`` of all they have
    ``left_credit``. ``ties`` are the flat groups that are dead, ``levels`` the rewards. ``halved`` is the
    expected number of flat groups had half of each group been sampled. ``sizes`` are the group sizes met.
    ``middle`` sums the midranges of the ``mixed`` groups, in which rewards differ.
    ``gain`` is the largest difference of advantages per difference of rewards, ``largest`` the largest
    advantage. ``parts`` are by component, of the ``parted`` sum of squares that follows the reward.
    """

    groups: int = 0
    completions: int = 0
    compared: int = 0
    flat: int = 0
    credited: int = 0
    dead: int = 0
    taught: int = 0
    nan: int = 0
    unscored: int = 0
    left_out: int = 0
    credit: float = 0.0
    left_credit: float = 0.0
    halved: float = 0.0
    parted: float = 0.0
    mixed: int = 0
    middle: float = 0.0
    gain: float = field(default=0.0, metadata=GREATEST)
    largest: float = field(default=0.0, metadata=GREATEST)
    ties: Ties = field(default_factory=Ties)
    levels: Levels = field(default_factory=Levels)
    length: LengthTie = field(default_factory=LengthTie)
    sizes: frozenset[int] = field(default=frozenset(), metadata={"added": or_})
    parts: Mapping[str, ComponentSums] = field(default_factory=dict, metadata={"added": _by_name})

    @property
    def dead_share(self) -> float:
        """Dead groups of all, 0 to 1."""
        return self.dead / self.groups if self.groups else 0.0

    @property
    def waste(self) -> float:
        """Share of the completions that were generated and teach nothing, 0 to 1."""
        return 1.0 - self.taught / self.completions if self.completions else 0.0

    @property
    def right_at(self) -> float | None:
        """The reward of groups that are all right: the highest tie, if it is above what differing groups get.

        None without one. Where no group differs, the midpoint of the ties separates the two kinds.
        """
        return self.ties.high if self.ties.high > self._level else None

    @property
    def wrong_at(self) -> float | None:
        """The reward of groups that are all wrong: the lowest tie, if below what differing groups get."""
        return self.ties.low if self.ties.low < self._level else None

    @property
    def all_right(self) -> int:
        """Groups of which every completion has the reward ``right_at``."""
        return 0 if self.right_at is None else self.ties.at_high

    @property
    def all_wrong(self) -> int:
        """Groups of which every completion has the reward ``wrong_at``."""
        return 0 if self.wrong_at is None else self.ties.at_low

    @property
    def _level(self) -> float:
        return self.middle / self.mixed if self.mixed else (self.ties.low + self.ties.high) / 2

    @property
    def shares(self) -> Mapping[str, float]:
        """Each component's share of the advantage's variance, together 1; below 0 it works against them."""
        whole = self.parted
        return {name: part.carried / whole for name, part in self.parts.items()} if whole else {}

    @property
    def half_flat_share(self) -> float | None:
        """Expected share of flat groups with half the group size; None where no group has two halves."""
        return self.halved / self.compared if self.compared and min(self.sizes) > 1 else None

    @property
    def least_flat_share_doubled(self) -> float | None:
        """At least this share of groups would be flat with twice the group size; None for uneven groups.

        The chance that G independent draws tie is a mixture of exponentials in G, whose logarithm is convex:
        the slope between half and whole only flattens beyond.
        """
        half = self.half_flat_share
        if half is None or len(self.sizes) != 1 or not self.flat:
            return None
        size = next(iter(self.sizes))
        whole = self.flat / self.compared
        slope = math.log(min(1.0, whole / half)) / (size - size // 2)
        return whole * math.exp(size * slope)


@dataclass(frozen=True)
class AlternativeExtremes(Sums):
    """Largest gain and largest advantage under an entry, over the ``groups`` that it takes."""

    groups: int = 0
    gain: float = field(default=0.0, metadata=GREATEST)
    largest: float = field(default=0.0, metadata=GREATEST)


def signal(groups: RewardGroups, advantage: Floats, facts: GroupFlags | None = None) -> SignalSums:
    """The numbers of groups under advantages (R,), which may be NaN; ``facts`` where they are known."""
    with np.errstate(all="ignore"):
        facts = group_flags(groups, advantage) if facts is None else facts
        parted, parts = _parts(groups, advantage)
        least, most = limits(groups, groups.reward)
        mixed = facts.reward_range > 0
        credit = np.where(np.isfinite(advantage), np.maximum(advantage, 0.0), 0.0)
        levels, times = np.unique(groups.reward[groups.scored], return_counts=True)
        counted = dict(zip(levels.tolist(), times.tolist(), strict=True)) if len(levels) <= _LEVELS else None
        left = ~groups.in_loss & ~facts.flags["flat"][groups.group]
        return SignalSums(
            groups=len(groups.step),
            completions=len(groups.reward),
            compared=int((groups.sizes > 1).sum()),
            flat=int(facts.flags["flat"].sum()),
            credited=int(facts.flags["flat_credit"].sum()),
            dead=int(facts.flags["dead"].sum()),
            taught=int(np.count_nonzero(facts.taught)),
            nan=int(np.count_nonzero(groups.no_number)),
            unscored=int(np.count_nonzero(~groups.scored)),
            left_out=int(np.count_nonzero(left)),
            credit=float(credit.sum()),
            left_credit=float(credit[left].sum()),
            halved=float(_halved(groups).sum()),
            parted=parted,
            gain=greatest(facts.gain),
            largest=greatest(facts.largest),
            mixed=int(np.count_nonzero(mixed)),
            middle=float(((least + most) / 2)[mixed].sum()),
            ties=ties(most, facts.tied),
            levels=Levels(counted),
            length=_length(groups, advantage),
            sizes=frozenset(np.unique(groups.sizes).tolist()),
            parts=parts,
        )


def ties(reward: Floats, flat: Bools) -> Ties:
    """How many of some flat groups have the least and the greatest ``reward``; (N,) each."""
    tied = reward[flat]
    if not len(tied):
        return Ties()
    low, high = float(tied.min()), float(tied.max())
    return Ties(low, int((tied == low).sum()), high, int((tied == high).sum()))


def greatest(values: Floats) -> float:
    """The largest finite value, 0 without one above it."""
    return float(np.max(values, where=np.isfinite(values), initial=0.0))


def _halved(groups: RewardGroups) -> Floats:
    """(N,): chance that half of a group's rewards, drawn without replacement, are one; 0 below two of them.

    Sums C(n, h) / C(G, h) over the finite rewards of the group, n times each of G.
    """
    order = sorted_within(groups, groups.reward)
    order = order[groups.scored[order]]
    reward, where = groups.reward[order], groups.group[order]
    sizes = np.bincount(where, minlength=len(groups.sizes))
    if not len(reward):
        return np.zeros(len(sizes))
    half = sizes // 2
    begins = np.append(True, (reward[1:] != reward[:-1]) | (where[1:] != where[:-1]))
    starts = np.flatnonzero(begins)
    same, of = np.diff(starts, append=len(reward)), where[starts]
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int(sizes.max()) + 1)))])
    # Fewer equal ones are never half of a group.
    drawn = same >= half[of]
    same, of = same[drawn], of[drawn]
    rest = same - half[of]
    chance = np.exp(factorial[same] - factorial[rest] - factorial[sizes[of]] + factorial[(sizes - half)[of]])
    total = np.bincount(of, weights=chance, minlength=len(sizes))
    shares: Floats = np.where(sizes > 1, total, 0.0)
    return shares


def _centred(groups: RewardGroups, values: Floats) -> Floats:
    """(R,): values minus the mean of those of their group that are numbers; 0 for those that are none."""
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    starts = groups.offsets[:-1]
    count = np.maximum(np.add.reduceat(known.astype(np.float64), starts), 1.0)
    mean = np.add.reduceat(filled, starts) / count
    return np.where(known, filled - np.repeat(mean, groups.sizes), 0.0)


def _parts(groups: RewardGroups, advantage: Floats) -> tuple[float, dict[str, ComponentSums]]:
    """What each weighted component carries of the squares of the advantages that follow the reward.

    Rows that are left out of the loss count in the means of their group, not in the sums.
    """
    if not groups.components:
        return 0.0, {}
    starts = groups.offsets[:-1]
    given = np.where(groups.in_loss, _centred(groups, advantage), 0.0)
    parts = {
        name: groups.weights.get(name, 1.0) * np.where(groups.in_loss, _centred(groups, values), 0.0)
        for name, values in groups.components.items()
    }
    whole = np.sum(list(parts.values()), axis=0)
    size = np.add.reduceat(whole * whole, starts)
    with_reward = np.add.reduceat(given * whole, starts)
    slope = np.divide(with_reward, size, out=np.zeros(len(size)), where=size > 0)
    sums = {}
    for name, part in parts.items():
        along = np.add.reduceat(given * part, starts)
        extent = np.maximum.reduceat(np.abs(part), starts)
        scale = np.maximum.reduceat(np.abs(np.nan_to_num(groups.components[name])), starts)
        varied = extent > _ROUNDING * np.abs(groups.weights.get(name, 1.0)) * scale
        against = varied & (along < -ZERO * extent)
        sums[name] = ComponentSums(int(varied.sum()), int(against.sum()), float(slope @ along))
    return float(slope @ with_reward), sums


def _length(groups: RewardGroups, advantage: Floats) -> LengthTie:
    known = np.isfinite(advantage) & (groups.tokens >= 0) & groups.in_loss
    if not known.any():
        return LengthTie()
    given = _centred(groups, np.where(known, advantage, np.nan))
    tokens = _centred(groups, np.where(known, groups.tokens, np.nan))
    return LengthTie(int(known.sum()), float(given @ tokens), float(given @ given), float(tokens @ tokens))


def alternative(groups: RewardGroups, advantage: Floats) -> AlternativeExtremes:
    """What the advantages (R,) of an entry make of the differences of rewards."""
    least, most = limits(groups, advantage)
    low, high = limits(groups, groups.reward)
    extent = high - low
    gain = np.divide(most - least, extent, out=np.full(len(extent), np.nan), where=extent > 0)
    largest = np.fmax(np.abs(least), np.abs(most))
    return AlternativeExtremes(int(np.isfinite(largest).sum()), greatest(gain), greatest(largest))


def logged(sums: SignalSums) -> dict[str, float]:
    """The numbers by name as a trainer logs them: shares of groups, what teaches, gain, components."""
    named = {
        "dead_share": sums.dead_share,
        "all_right_share": sums.all_right / sums.groups if sums.groups else 0.0,
        "all_wrong_share": sums.all_wrong / sums.groups if sums.groups else 0.0,
        "nan_share": sums.nan / sums.completions if sums.completions else 0.0,
        "effective_batch": float(sums.taught),
        "largest_gain": sums.gain,
        "largest_advantage": sums.largest,
    }
    return named | {f"share/{name}": share for name, share in sums.shares.items()}
