"""Comparison of our numbers with a published direction: how many share it, and a sign test.

Seeds are the unit of the sign test. Numbers that belong to no seed are labelled with their own unit.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from math import comb

from search_to_signal.claims.expressions import Value


class Direction(str, Enum):
    """How our estimate compares with a published number or statement."""

    SAME = "same direction"
    OPPOSITE = "opposite direction"
    UNDECIDED = "undecided"
    TIED = "tied"
    HOLDS = "holds for ours"
    FAILS = "does not hold for ours"
    NOT_COMPARABLE = "not comparable"
    MISSING = "no counterpart"


CHANCE = 0.05
"""The level of the sign test; a split with a larger p-value is undecided."""


@dataclass(frozen=True)
class Estimate:
    """A direction with its text: in how many of n it is found and our number, or what is missing.

    ``comparison`` identifies our numbers behind it; it is equal for entries with the same numbers.
    """

    direction: Direction
    text: str
    comparison: tuple[tuple[str, float], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Signs:
    """The counts of our numbers above, below and at the reference value; ``unit`` names what is counted.

    ``votes`` are the counts above and below that the sign test uses: seeds, each by the majority of its
    numbers, or the numbers themselves where they belong to no seed.
    """

    above: int
    below: int
    equal: int
    unit: str
    votes: tuple[int, int]

    @property
    def n(self) -> int:
        return self.above + self.below + self.equal

    @property
    def by_chance(self) -> float:
        """The two-sided p-value of a sign test over the votes."""
        total = sum(self.votes)
        tail = sum(comb(total, k) for k in range(min(self.votes) + 1))
        return min(1.0, 2.0 * tail / 2.0**total)


def count_signs(value: Value) -> Signs:
    """Count the numbers above, below and at zero."""
    above = sum(item.lo > 0 for item in value.items)
    below = sum(item.hi < 0 for item in value.items)
    unit = "seeds" if _of_distinct_seeds(value) else "comparisons"
    return Signs(above, below, len(value.items) - above - below, unit, _votes(value) or (above, below))


def _of_distinct_seeds(value: Value) -> bool:
    """Whether every number belongs to a different seed."""
    return all(value.labels) and len(set(value.labels)) == len(value.items)


def _votes(value: Value) -> tuple[int, int] | None:
    """Count the seeds with a majority above and below zero; None where a number belongs to no seed."""
    if not all(value.labels):
        return None
    votes: dict[str, int] = defaultdict(int)
    for item, label in zip(value.items, value.labels, strict=True):
        votes[label] += (item.lo > 0) - (item.hi < 0)
    return sum(vote > 0 for vote in votes.values()), sum(vote < 0 for vote in votes.values())


def comparison_key(value: Value) -> tuple[tuple[str, float], ...]:
    """Return a key of the numbers by seed; it ignores the last bits and the order of a difference's sides."""
    middles = [round(float(item.lo + item.hi) / 2.0, 9) for item in value.items]
    turned = (
        sorted((label, sign * middle + 0.0) for label, middle in zip(value.labels, middles, strict=True))
        for sign in (1, -1)
    )
    return tuple(min(turned))


def compare_direction(split: Signs, sign: int, text: str) -> Estimate:
    """Compare with a published direction: by sign for one number without seed, else by a sign test.

    ``sign`` is the published direction (1 or -1), ``text`` describes our number.
    """
    same, opposite = (split.above, split.below)[::sign]
    alone = split.n == 1 and split.unit != "seeds"
    direction = Direction.TIED
    if same != opposite:
        direction = Direction.SAME if same > opposite else Direction.OPPOSITE
        direction = direction if alone or split.by_chance <= CHANCE else Direction.UNDECIDED
    if alone:
        return Estimate(direction, text)
    rest = f"opposite in {opposite}, tied in {split.equal}"
    return Estimate(direction, f"same direction in {same} of {split.n} {split.unit}, {rest}; {text}")


def check_statement(kind: str, split: Signs, text: str) -> Estimate:
    """Check a statement ("every", "most", "mixed", "not every" above zero) against our numbers."""
    rest = f"{split.below} below, {split.equal} equal; {text}"
    counted = f"{split.above} of {split.n} {split.unit} above, {rest}"
    if kind == "mixed" and split.n < 2:
        return Estimate(Direction.NOT_COMPARABLE, f"one {split.unit[:-1]} cannot be mixed; {counted}")
    holds = {
        "every": split.above == split.n,
        "most": 2 * split.above > split.n,
        "mixed": split.above > 0 and split.below > 0,
        "not every": split.above < split.n,
    }[kind]
    return Estimate(Direction.HOLDS if holds else Direction.FAILS, f"{kind}: {counted}")


def undecided_yet(estimate: Estimate) -> Estimate:
    """Return the estimate without a direction, since runs that are still to come may turn it."""
    if estimate.direction in (Direction.NOT_COMPARABLE, Direction.MISSING):
        return estimate
    return replace(estimate, direction=Direction.UNDECIDED, text=f"runs are awaited; so far {estimate.text}")


def numbers(value: Value, whole: Value | None) -> str:
    """Format our number: its mean or ``whole``, its unit, and the smallest and largest value."""
    values = [float(item.lo + item.hi) / 2 for item in value.items]
    summary = sum(values) / len(values) if whole is None else float(whole.one().lo)
    ends = "" if len(values) == 1 else f", {min(values):.6g} to {max(values):.6g}"
    return f"ours {summary:.6g} ({_of_what(value)}{ends})"


def _of_what(value: Value) -> str:
    """Format ``n = 20`` where every number has its own seed, else a description of the numbers."""
    if _of_distinct_seeds(value):
        return f"n = {len(value.items)}"
    if value.seeds:
        return f"of {value.seeds} seeds"
    seeds = len(set(filter(None, value.labels)))
    count = "one number" if len(value.items) == 1 else f"{len(value.items)} numbers"
    return f"{count} of {seeds} seeds" if seeds else f"{count}, not seeds"
