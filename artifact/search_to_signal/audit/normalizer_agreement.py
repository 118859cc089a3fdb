"""How far an entry's advantages agree with others of the same rollouts."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.atlas import NormalizerEntry
from search_to_signal.audit.group_flags import FLOAT32, ZERO, GroupFlags, flat_rounding, reward_size
from search_to_signal.audit.groups import Floats, Integers, RewardGroups, sorted_within

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
class EntryAgreement:
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
    first: AdvantageDifference | None = None

    def __add__(self, more: "EntryAgreement") -> "EntryAgreement":
        sums = {
            name: getattr(self, name) + getattr(more, name)
            for name in self.__dataclass_fields__
            if name not in ("error", "first")
        }
        return EntryAgreement(**sums, error=max(self.error, more.error), first=self.first or more.first)

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
    starts = groups.offsets[:-1]
    taken = np.logical_and.reduceat(both, starts)
    flipped = taken & np.logical_or.reduceat(_signs_differ(own, other), starts)
    return EntryAgreement(
        rows=int(np.count_nonzero(asked)),
        missing=int(np.count_nonzero(asked & ~given)),
        equal=int(np.count_nonzero(both & (own == other))),
        near=int(np.count_nonzero(near)),
        groups=int(np.count_nonzero(taken)),
        turned=int(np.count_nonzero(_turned(reference, own) & taken)),
        flipped=int(np.count_nonzero(flipped)),
        dot=float(own @ other),
        own=float(own @ own),
        other=float(other @ other),
        error=float(gap.max(initial=0.0)),
        first=_first(groups, values, computed, both & ~near),
    )


def _signs_differ(own: Floats, other: Floats) -> NDArray[np.bool_]:
    return ((own > ZERO) & (other < -ZERO)) | ((own < -ZERO) & (other > ZERO))


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


def _first(
    groups: RewardGroups, reference: Floats, computed: Floats, where: Floats
) -> AdvantageDifference | None:
    rows = np.flatnonzero(where)
    if not len(rows):
        return None
    row = int(rows[0])
    place = place_of(groups, int(groups.group[row]), row)
    return AdvantageDifference(place, float(reference[row]), float(computed[row]))


def place_of(groups: RewardGroups, group: int, row: int | None = None) -> LogPlace:
    """Where a group begins, or one of its rows stands."""
    at = int(groups.offsets[group]) if row is None else row
    return LogPlace(groups.source_of(at), int(groups.step[group]), int(groups.position[at]))
