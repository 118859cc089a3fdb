"""The numbers of a batch: a pure function of rewards, groups and advantages.

>>> one = signal_of([0, 0, 1, 1], ["a", "a", "b", "b"], [0, 0, 0, 0])
>>> one.dead_share, one.taught
(1.0, 0)

Rows may stand in any order, and the numbers of two batches add up: a run is summed step by step, or a step is
logged while it trains. The share of a component is the advantage's variance as a sum of covariances with the
weighted components, within groups, each group at its own slope.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from search_to_signal.audit.group_facts import ZERO, Bools, GroupFacts, group_facts, limits
from search_to_signal.audit.groups import Floats, RewardGroups, of_arrays, sorted_within
from search_to_signal.audit.signals import ComponentSums, LengthTie, Signal, Ties

# A component varies in a group where it moves by more than this share of its size.
_ROUNDING = 1e-9


def signal_of(
    rewards: ArrayLike,
    groups: Sequence[Hashable],
    advantages: ArrayLike,
    components: Mapping[str, ArrayLike] | None = None,
    weights: Mapping[str, float] | None = None,
    tokens: ArrayLike | None = None,
) -> Signal:
    """The numbers of one batch of a trainer: (R,) each, ``groups`` names the group of each row.

    ``components`` are the parts of the reward before their ``weights``, which are 1 where not given.
    Raises IllFormedGroupError where lengths differ.
    """
    first: dict[Hashable, int] = {}
    places = np.array([first.setdefault(name, len(first)) for name in groups], dtype=np.int64)
    order = np.argsort(places, kind="stable")
    columns: dict[str, Any] = {"advantage": _in(order, advantages)}
    if tokens is not None:
        columns["tokens"] = _in(order, tokens).astype(np.int64)
    parts = {name: _in(order, values) for name, values in (components or {}).items()}
    batch = of_arrays(_in(order, rewards), np.bincount(places), components=parts, weights=weights, **columns)
    return signal(batch, batch.advantage)


def _in(order: Any, values: ArrayLike) -> Floats:
    given = np.asarray(values, dtype=np.float64)
    return given[order] if len(given) == len(order) else given


def signal(groups: RewardGroups, advantage: Floats, facts: GroupFacts | None = None) -> Signal:
    """The numbers of groups under advantages (R,), which may be NaN; ``facts`` where they are known."""
    with np.errstate(all="ignore"):
        facts = group_facts(groups, advantage) if facts is None else facts
        parted, parts = _parts(groups, advantage)
        least, most = limits(groups, groups.reward)
        mixed = facts.reward_range > 0
        return Signal(
            groups=len(groups.step),
            completions=len(groups.reward),
            compared=int((groups.sizes > 1).sum()),
            flat=int(facts.flags["flat"].sum()),
            dead=int(facts.flags["dead"].sum()),
            taught=int(np.count_nonzero(facts.taught)),
            halved=float(_halved(groups).sum()),
            parted=parted,
            gain=greatest(facts.gain),
            largest=greatest(facts.largest),
            mixed=int(np.count_nonzero(mixed)),
            middle=float(((least + most) / 2)[mixed].sum()),
            ties=ties(most, facts.flags["flat"]),
            length=_length(groups, advantage),
            sizes=frozenset(np.unique(groups.sizes).tolist()),
            parts=parts,
        )


def ties(reward: Floats, flat: Bools) -> Ties:
    """How many of the flat groups have the least and the greatest ``reward``; (N,) each."""
    tied = reward[flat]
    if not len(tied):
        return Ties()
    low, high = float(tied.min()), float(tied.max())
    return Ties(low, int((tied == low).sum()), high, int((tied == high).sum()))


def greatest(values: Floats) -> float:
    """The largest finite value, 0 without one above it."""
    return float(np.max(values, where=np.isfinite(values), initial=0.0))


def _halved(groups: RewardGroups) -> Floats:
    """(N,): chance that half of a group, drawn without replacement, has one reward; 0 below two rows.

    Sums C(n, h) / C(G, h) over the rewards of the group, n times each.
    """
    sizes = groups.sizes
    half = sizes // 2
    order = sorted_within(groups, groups.reward)
    reward, where = groups.reward[order], groups.group[order]
    begins = np.append(True, (reward[1:] != reward[:-1]) | (where[1:] != where[:-1]))
    starts = np.flatnonzero(begins)
    same, of = np.diff(starts, append=len(reward)), where[starts]
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int(sizes.max()) + 1)))])
    drawn = same >= half[of]
    rest = np.where(drawn, same - half[of], 0)
    chance = np.exp(factorial[same] - factorial[rest] - factorial[sizes[of]] + factorial[(sizes - half)[of]])
    total = np.bincount(of, weights=np.where(drawn, chance, 0.0), minlength=len(sizes))
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
    """What each weighted component carries of the squares of the advantages that follow the reward."""
    if not groups.components:
        return 0.0, {}
    starts = groups.offsets[:-1]
    given = _centred(groups, advantage)
    parts = {
        name: groups.weights.get(name, 1.0) * _centred(groups, values)
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
        against = varied & (along * np.sign(groups.weights.get(name, 1.0)) < -ZERO * extent)
        sums[name] = ComponentSums(int(varied.sum()), int(against.sum()), float(slope @ along))
    return float(slope @ with_reward), sums


def _length(groups: RewardGroups, advantage: Floats) -> LengthTie:
    known = np.isfinite(advantage) & (groups.tokens >= 0)
    if not known.any():
        return LengthTie()
    given = _centred(groups, np.where(known, advantage, np.nan))
    tokens = _centred(groups, np.where(known, groups.tokens, np.nan))
    return LengthTie(int(known.sum()), float(given @ tokens), float(given @ given), float(tokens @ tokens))


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
