"""Entries of the atlas applied to logged groups, and how far their advantages agree with the logged ones.

Where none agrees, other groups are tried than the log names; and knobs of the reward under an entry.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.atlas import NormalizerEntry, RewardBatch
from search_to_signal.audit.atlas.compute import advantages
from search_to_signal.audit.flags import FLOAT32, ROUNDED, ZERO, GroupFlags, flat_rounding, reward_size
from search_to_signal.audit.groups import (
    Floats,
    Integers,
    RewardGroups,
    of_arrays,
    part,
    sorted_within,
    spans,
    taken,
)
from search_to_signal.base.errors import IllFormedGroupError
from search_to_signal.base.numerics import GREATEST, Sums

_OURS = "ours"  # the source of this project's own entries


@dataclass(frozen=True)
class StepBatches:
    """Groups in the form that the atlas takes, made once for all entries: all at once, and step by step.

    ``reward`` (R,) and ``parts`` may stand in for the logged reward and components.
    """

    groups: RewardGroups
    reward: Floats
    parts: Mapping[str, Floats]

    @cached_property
    def whole(self) -> RewardBatch:
        """Every group."""
        return self._batch(0, len(self.groups.step))

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """(R,): rows that take part in their group. What a trainer left out may have no reward at all."""
        taken: NDArray[np.bool_] = ~(self.groups.masked & np.isnan(self.reward))
        return taken

    @cached_property
    def without(self) -> "StepBatches":
        """The same groups of the rows that are counted."""
        rows, groups = self.counted, self.groups
        sizes = np.add.reduceat(rows.astype(np.int64), groups.offsets[:-1])
        parts = {name: values[rows] for name, values in self.parts.items()}
        kept = of_arrays(
            self.reward[rows],
            sizes[sizes > 0],
            groups.source,
            parts,
            # Of a reward that is tried without a component, its weight is left out too.
            {name: weight for name, weight in groups.weights.items() if name in parts},
            step=groups.step[sizes > 0],
            tokens=groups.tokens[rows],
        )
        return StepBatches(kept, kept.reward, kept.components)

    @cached_property
    def steps(self) -> list[tuple[slice, RewardBatch]]:
        """The rows of each step, and its groups."""
        bounds = zip(spans(self.groups), pairwise(self.starts.tolist()), strict=True)
        return [(slice(*rows), self._batch(first, end)) for (first, end), rows in bounds]

    @cached_property
    def starts(self) -> Integers:
        """(S+1,): the first row of each step, then R."""
        return self.groups.offsets[[0, *(end for _, end in spans(self.groups))]]

    def _batch(self, first: int, end: int) -> RewardBatch:
        offsets = self.groups.offsets[first : end + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        tokens = self.groups.tokens[rows]
        return RewardBatch(
            self.reward[rows],
            offsets - offsets[0],
            tokens if (tokens >= 0).all() else None,
            {name: values[rows] for name, values in self.parts.items()},
            self.groups.weights,
        )


def step_batches(groups: RewardGroups) -> StepBatches:
    """Logged groups as the atlas takes them."""
    return StepBatches(groups, groups.reward, groups.components)


def apply(entry: NormalizerEntry, batches: StepBatches) -> Floats:
    """Advantages (R,) of whole steps; NaN where the entry refuses a step or gives NaN, and for what a trainer
    left out without a reward."""
    if not batches.counted.all():
        result = np.full(len(batches.reward), np.nan)
        if batches.counted.any():
            result[batches.counted] = apply(entry, batches.without)
        return result
    weighs = entry.baseline == "lengths" or (entry.whiten is not None and entry.whiten.over == "tokens")
    if weighs and (batches.groups.tokens < 0).all():
        return np.full(len(batches.reward), np.nan)
    together = (entry.scope == "group" or _groups_first(entry, batches)) and (
        entry.uneven == "by group" or batches.whole.is_even
    )
    with warnings.catch_warnings():
        # A deviation of one number is NaN in the framework too, and is counted as that.
        warnings.simplefilter("ignore", RuntimeWarning)
        if together:
            try:
                return _advantages(entry, batches.whole, batches.starts)
            except IllFormedGroupError:
                pass
        result = np.full(len(batches.reward), np.nan)
        for rows, batch in batches.steps:
            with suppress(IllFormedGroupError):
                result[rows] = _of_step(entry, batch)
    return result


def _of_step(entry: NormalizerEntry, batch: RewardBatch) -> Floats:
    """Advantages of a step. Ours takes a group at a time, so it refuses one that lacks a reward, no other."""
    parts = batch.components.values() if entry.components else ()
    scored = np.logical_and.reduce([np.isfinite(values) for values in (batch.rewards, *parts)])
    whole = np.logical_and.reduceat(scored, batch.offsets[:-1])
    if entry.source != _OURS or entry.scope != "group" or whole.all() or not whole.any():
        return _advantages(entry, batch)
    rows = np.repeat(whole, batch.sizes)
    kept = RewardBatch(
        batch.rewards[rows],
        np.concatenate([[0], np.cumsum(batch.sizes[whole])]).astype(np.int64),
        None if batch.lengths is None else batch.lengths[rows],
        {name: values[rows] for name, values in batch.components.items()},
        batch.component_weights,
    )
    result = np.full(len(rows), np.nan)
    result[rows] = _advantages(entry, kept)
    return result


def _groups_first(entry: NormalizerEntry, batches: StepBatches) -> bool:
    """Whether only the whitening or the deviation looks beyond a group; some round a lone group otherwise."""
    if entry.whiten is None:
        return not entry.formula and entry.scale is not None and entry.scale.over == "batch"
    if entry.scale is not None and entry.scale.measured == "one row rounded":
        return entry.scale.over == "group" and all(len(step.sizes) > 1 for _, step in batches.steps)
    return entry.scale is None or entry.scale.over == "group"


def _advantages(entry: NormalizerEntry, batch: RewardBatch, starts: Integers | None = None) -> Floats:
    if entry.domain == "binary" and not np.isin(batch.rewards, (0.0, 1.0)).all():
        raise IllFormedGroupError(f"{entry.name} takes rewards 0 and 1: use another entry")
    return advantages(entry, batch, starts=starts)


# 1 - cosine of two vectors that are the same but for float32.
_SAME = 1e-12
# Digits to which logs round, and different numbers that have to be rounded for it to be no accident.
# Fewer will do for four digits: no advantage is 0.3333 by itself.
_DIGITS, _ROUNDED, _FINE = (2, 3, 4, 5), 6, 4


@dataclass(frozen=True)
class LogPlace:
    """Where to look: file, step, and line (from 1) or row (from 0) of its first completion."""

    source: str
    step: int
    position: int


@dataclass(frozen=True)
class AdvantageDifference:
    """The first row at which two advantages differ beyond rounding."""

    place: LogPlace
    logged: float
    computed: float


@dataclass(frozen=True)
class EntryAgreement(Sums):
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
    error: float = field(default=0.0, metadata=GREATEST)
    first: AdvantageDifference | None = field(
        default=None, metadata={"added": lambda one, other: one or other}
    )

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
    def apart(self) -> float:
        """1 - cosine, 0 to 2, where less than rounding is 0; infinite where there is no cosine."""
        if self.cosine is None:
            return math.inf
        return 0.0 if 1.0 - self.cosine < _SAME else 1.0 - self.cosine

    @property
    def size(self) -> float | None:
        """Length of the entry's vector over that of the reference; None where that is 0, or too large."""
        known = self.own < math.inf and 0 < self.other < math.inf
        return math.sqrt(self.own / self.other) if known else None


@dataclass(frozen=True)
class ReferenceAdvantages:
    """Advantages (R,) that entries are compared with, and what all comparisons need of them.

    ``asked`` (R,) have a number. ``slack`` (R,) is rounding. ``flat`` (R,) are the rows of flat groups; None
    where no group is flat. ``order`` sorts the rows by group and reference;
    in it ``neighbours`` (R - 1,) are of one group, the ``ties`` of equal references begin, and between the
    pairs ``higher`` of neighbouring ties of one group, ``where`` (pairs,), the reference rises beyond
    rounding.
    """

    groups: RewardGroups
    values: Floats
    slack: Floats
    flat: NDArray[np.bool_] | None
    asked: NDArray[np.bool_]
    order: Integers
    neighbours: NDArray[np.bool_]
    ties: Integers
    higher: NDArray[np.bool_]
    where: Integers


def logged_digits(values: Floats) -> int | None:
    """Decimal digits to which a log rounds its advantages (R,): 2 to 5; None where it does not."""
    known = np.unique(np.abs(values[np.isfinite(values) & (values != 0)]))
    slack = FLOAT32 * np.maximum(known, 1.0)
    whole = (digits for digits in _DIGITS if (np.abs(np.round(known, digits) - known) < slack).all())
    digits = next(whole, None) if len(known) else None
    return None if digits is None or (len(known) < _ROUNDED and digits < _FINE) else digits


def reference_of(
    groups: RewardGroups, values: Floats, facts: GroupFlags, digits: int | None = None
) -> ReferenceAdvantages:
    """Advantages (R,) of a batch, sorted once for all entries; ``digits`` are those of a log that rounds."""
    group, asked = groups.group, np.isfinite(values)
    filled = np.where(asked, values, np.inf)
    order = sorted_within(groups, filled)
    ordered, within = filled[order], group[order]
    neighbours = within[1:] == within[:-1]
    changes = (ordered[1:] != ordered[:-1]) | ~neighbours
    ties = np.append(0, np.flatnonzero(changes) + 1)
    level, where = ordered[ties], within[ties]
    scale = np.nan_to_num(facts.largest)[where[1:]]
    with np.errstate(invalid="ignore"):
        rises = np.diff(level) > ZERO * scale
    higher = rises & (where[1:] == where[:-1])
    slack = rounding(groups, facts) + (0.0 if digits is None else 0.5 * 10.0**-digits)
    flat = facts.flags["flat"]
    tied = np.repeat(flat, groups.sizes) if flat.any() else None
    return ReferenceAdvantages(groups, values, slack, tied, asked, order, neighbours, ties, higher, where[1:])


def flat_gain(entry: NormalizerEntry) -> float:
    """What an entry multiplies the rounding of a mean of equal rewards by: the order of a sum decides it."""
    of_group = bool(entry.formula) or (entry.scale is not None and entry.scale.over == "group")
    if not of_group or not entry.epsilon or entry.flat != "rounding" or entry.dtype != "float32":
        return 0.0
    return 1.0 / (entry.epsilon if entry.epsilon_at == "deviation" else math.sqrt(entry.epsilon))


def agreement(reference: ReferenceAdvantages, computed: Floats, gain: float = 0.0) -> EntryAgreement:
    """Compare the advantages (R,) of an entry, whose ``flat_gain`` is ``gain``, with a reference."""
    groups, values, asked, slack = reference.groups, reference.values, reference.asked, reference.slack
    if gain and reference.flat is not None:
        slack = slack + np.where(reference.flat, np.repeat(flat_rounding(groups, gain), groups.sizes), 0.0)
    given = np.isfinite(computed)
    both = asked & given
    own, other = np.where(both, computed, 0.0), np.where(both, values, 0.0)
    gap = np.abs(own - other)
    near = both & (gap <= slack)
    off, first = np.flatnonzero(both & ~near)[:1].tolist(), None
    for row in off:
        place = place_of(groups, int(groups.group[row]), row)
        first = AdvantageDifference(place, float(values[row]), float(computed[row]))
    starts = groups.offsets[:-1]
    whole = np.logical_and.reduceat(both, starts)
    opposed = ((own > ZERO) & (other < -ZERO)) | ((own < -ZERO) & (other > ZERO))
    flipped = whole & np.logical_or.reduceat(opposed, starts)
    return EntryAgreement(
        rows=int(np.count_nonzero(asked)),
        missing=int(np.count_nonzero(asked & ~given)),
        equal=int(np.count_nonzero(both & (own == other))),
        near=int(np.count_nonzero(near)),
        groups=int(np.count_nonzero(whole)),
        turned=int(np.count_nonzero(_turned(reference, own) & whole)),
        flipped=int(np.count_nonzero(flipped)),
        dot=float(own @ other),
        own=float(own @ own),
        other=float(other @ other),
        error=float(gap.max(initial=0.0)),
        first=first,
    )


def same_bits(first: Floats, second: Floats) -> bool:
    """Whether two columns (R,) are the same number by number; a NaN is the same as itself."""
    first, second = first.view(np.int64), second.view(np.int64)
    # Those of different entries mostly differ at once.
    return np.array_equal(first[:64], second[:64]) and np.array_equal(first, second)


def _turned(reference: ReferenceAdvantages, computed: Floats) -> NDArray[np.bool_]:
    """(N,): groups that an entry orders otherwise, beyond rounding; right where it takes the whole group."""
    turned = np.zeros(len(reference.groups.step), dtype=np.bool_)
    ordered = computed[reference.order]
    if not (reference.neighbours & (ordered[1:] < ordered[:-1])).any():
        return turned
    greatest = np.maximum.reduceat(ordered, reference.ties)[:-1]
    least = np.minimum.reduceat(ordered, reference.ties)[1:]
    size = np.maximum.reduceat(np.abs(computed), reference.groups.offsets[:-1])
    falls = least - greatest < -ZERO * size[reference.where]
    turned[reference.where[falls & reference.higher]] = True
    return turned


def rounding(groups: RewardGroups, facts: GroupFlags) -> Floats:
    """What float32 may cost, (R,): rounding of the advantage, and that of the reward, amplified.

    A flat group shows no gain: it has at least that of the group which is amplified least, and the mean of
    the batch, which some take off, is rounded by the largest reward.
    """
    size = reward_size(groups)
    least = float(np.min(facts.gain, where=np.isfinite(facts.gain), initial=np.inf))
    amplified = np.nan_to_num(facts.gain) * size
    if least < np.inf:
        amplified = np.where(facts.flags["flat"], least * size.max(), amplified)
    slack: Floats = np.repeat(FLOAT32 * (np.nan_to_num(facts.largest) + amplified), groups.sizes)
    return slack


def place_of(groups: RewardGroups, group: int, row: int | None = None) -> LogPlace:
    """Where a group begins, or one of its rows stands."""
    at = int(groups.offsets[group]) if row is None else row
    return LogPlace(groups.source_of(at), int(groups.step[group]), int(groups.position[at]))


# Whether other groups than the log names explain its advantages: by prompt, or by the rows of a step.

# Rows of the log that are tried, the largest group, and the groupings that entries are applied to.
_ROWS, _LARGEST, _MOST = 4_096, 128, 12
BY_PROMPT = "completions of one prompt"
TOGETHER = "rows that follow each other"
APART = "rows at equal distances"


@dataclass(frozen=True)
class Regrouping:
    """Groups of ``size`` rows (0: of any size), which are ``how``, and the entry that explains them."""

    how: str
    size: int
    normalizer: str


def regrouping(groups: RewardGroups, explaining: Callable[[RewardGroups], str | None]) -> Regrouping | None:
    """The first other grouping of the first steps under which an entry gives every logged advantage.

    ``explaining`` names that entry.
    """
    bounds = [end for _, end in spans(groups) if groups.offsets[end] <= _ROWS]
    if not bounds:
        return None
    tried = part(groups, 0, bounds[-1])
    made = (
        (how, size, taken(tried, order, offsets, tried.group[order[offsets[:-1]]]))
        for how, size, order, sizes in _candidates(tried)
        for offsets in [np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)]
    )
    ordered = (one for one in made if _ordered(one[2]))
    for how, size, other in islice(ordered, _MOST):
        if (name := explaining(other)) is not None:
            return Regrouping(how, size, name)
    return None


def _candidates(groups: RewardGroups) -> Iterator[tuple[str, int, Integers, Integers]]:
    """Each grouping, its size, the rows in an order in which groups are together, and the sizes of groups."""
    if groups.prompt_id.all():
        keys = np.stack([groups.step.astype(np.uint64), groups.prompt_id])
        prompt = np.unique(keys, axis=1, return_inverse=True)[1].ravel()[groups.group]
        yield BY_PROMPT, 0, np.argsort(prompt, kind="stable"), np.bincount(prompt)
    bounds = [slice(groups.offsets[first], groups.offsets[end]) for first, end in spans(groups)]
    file = np.zeros(len(groups.reward), dtype=np.int32) if groups.file is None else groups.file.code
    rows = [at.start + np.lexsort((groups.position[at], file[at])) for at in bounds]
    place = np.concatenate(rows)
    for size in range(2, _LARGEST + 1):
        if all(len(step) % size == 0 for step in rows):
            sizes = np.full(len(place) // size, size)
            yield TOGETHER, size, place, sizes
            yield APART, size, np.concatenate([step.reshape(size, -1).T.ravel() for step in rows]), sizes


def _ordered(groups: RewardGroups) -> bool:
    """Whether no higher reward of a group has a lower advantage, and equal ones have equal advantages."""
    order = sorted_within(groups, groups.reward, groups.advantage)
    within = groups.group[order][1:] == groups.group[order][:-1]
    reward, advantage = np.diff(groups.reward[order])[within], np.diff(groups.advantage[order])[within]
    slack = ZERO * max(1.0, float(np.abs(groups.advantage).max(initial=0.0)))
    return bool((advantage >= -slack).all() and (np.abs(advantage[reward == 0]) <= slack).all())


# Which knobs of a reward cannot matter under a normalizer: advantages computed again without them.

SCALE = "all rewards times 10"
COMPONENT = "component "
# A group changes where an advantage moves by more than this share of the group's largest one.
_CHANGE = 0.01


@dataclass(frozen=True)
class Knob(Sums):
    """Of ``groups`` with an advantage other than 0, ``changed`` move by more than 1 % without the knob."""

    groups: int = 0
    changed: int = 0


def knobs(entry: NormalizerEntry, groups: RewardGroups, base: Floats) -> dict[str, Knob]:
    """Every knob of a batch by name; ``base`` (R,) are the advantages with all of them.

    A component counts only where the reward is the weighted sum of the components.
    """
    parts = groups.components
    tried = {SCALE: (groups.reward * 10.0, {name: values * 10.0 for name, values in parts.items()})}
    weighed = {name: groups.weights.get(name, 1.0) * np.nan_to_num(values) for name, values in parts.items()}
    whole, reward = sum(weighed.values()), np.nan_to_num(groups.reward)
    if len(parts) > 1 and np.allclose(whole, reward, rtol=1e-6, atol=1e-9):
        for name, part in weighed.items():
            rest = {other: values for other, values in parts.items() if other != name}
            tried[f"{COMPONENT}{name}"] = groups.reward - part, rest
    starts, found = groups.offsets[:-1], dict[str, Knob]()
    largest = np.maximum.reduceat(np.nan_to_num(np.abs(base)), starts)
    # A group without an advantage, or with rounding in its place, has nothing to change.
    credited = largest > max(ZERO, ROUNDED * largest.max(initial=0.0))
    for name, given in tried.items():
        other = apply(entry, StepBatches(groups, *given))
        known = credited & np.logical_and.reduceat(np.isfinite(base) & np.isfinite(other), starts)
        moved = np.maximum.reduceat(np.nan_to_num(np.abs(other - base)), starts)
        found[name] = Knob(int(known.sum()), int((known & (moved > _CHANGE * largest)).sum()))
    return found
