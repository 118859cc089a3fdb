"""What a trainer's update is made of, as sums that add up over batches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from search_to_signal.numerics import added


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
class ComponentSums:
    """Of a component: groups in which it ``varied``, and ``against`` those of them in which the completions
    that it rates higher get the lower advantages; ``carried`` is its part of the sum of squares."""

    varied: int = 0
    against: int = 0
    carried: float = 0.0

    def __add__(self, more: "ComponentSums") -> "ComponentSums":
        return added(self, more)


@dataclass(frozen=True)
class LengthTie:
    """Sums within groups for the correlation of advantage and tokens, over ``rows`` that have both."""

    rows: int = 0
    both: float = 0.0
    advantage: float = 0.0
    tokens: float = 0.0

    def __add__(self, more: "LengthTie") -> "LengthTie":
        return added(self, more)

    @property
    def correlation(self) -> float | None:
        """Above 0 longer completions of a group get the higher advantages; None where either never varies."""
        norm = math.sqrt(self.advantage * self.tokens)
        return self.both / norm if 0 < norm < math.inf else None


@dataclass(frozen=True)
class Signal:
    """Sums over groups; adding two joins their groups.

    ``compared`` groups have two and more rewards, ``flat`` of them equal ones; ``dead`` give no completion an
    advantage that differs. ``taught`` completions have an advantage (``GroupFacts``). ``halved`` is the
    expected number of flat groups had half of each group been sampled. ``sizes`` are the group sizes met.
    ``middle`` sums the midranges of the ``mixed`` groups, in which rewards differ.
    ``gain`` is the largest difference of advantages per difference of rewards, ``largest`` the largest
    advantage. ``parts`` are by component, of the ``parted`` sum of squares that follows the reward.
    """

    groups: int = 0
    completions: int = 0
    compared: int = 0
    flat: int = 0
    dead: int = 0
    taught: int = 0
    halved: float = 0.0
    parted: float = 0.0
    mixed: int = 0
    middle: float = 0.0
    gain: float = 0.0
    largest: float = 0.0
    ties: Ties = field(default_factory=Ties)
    length: LengthTie = field(default_factory=LengthTie)
    sizes: frozenset[int] = frozenset()
    parts: Mapping[str, ComponentSums] = field(default_factory=dict)

    def __add__(self, more: "Signal") -> "Signal":
        own = ("gain", "largest", "sizes", "parts")
        sums = {
            number.name: getattr(self, number.name) + getattr(more, number.name)
            for number in fields(self)
            if number.name not in own
        }
        names = dict.fromkeys((*self.parts, *more.parts))
        return Signal(
            **sums,
            gain=max(self.gain, more.gain),
            largest=max(self.largest, more.largest),
            sizes=self.sizes | more.sizes,
            parts={
                name: self.parts.get(name, ComponentSums()) + more.parts.get(name, ComponentSums())
                for name in names
            },
        )

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


def logged(signal: Signal) -> dict[str, float]:
    """The numbers by name as a trainer logs them: shares of groups, what teaches, gain, components."""
    named = {
        "dead_share": signal.dead_share,
        "all_right_share": signal.all_right / signal.groups if signal.groups else 0.0,
        "all_wrong_share": signal.all_wrong / signal.groups if signal.groups else 0.0,
        "effective_batch": float(signal.taught),
        "largest_gain": signal.gain,
        "largest_advantage": signal.largest,
    }
    return named | {f"share/{name}": share for name, share in signal.shares.items()}
