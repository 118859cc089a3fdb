"""What our numbers say beside a published direction: how many share it, and whether a coin would do as much.

Seeds are the unit of the sign test. Numbers that are of no seed say what they are.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from math import comb

from search_to_signal.claims.expressions import Value


class Direction(str, Enum):
    """What our estimate says beside a published number or statement."""

    SAME = "same direction"
    OPPOSITE = "opposite direction"
    UNDECIDED = "undecided"
    TIED = "tied"
    HOLDS = "holds for ours"
    FAILS = "does not hold for ours"
    NOT_COMPARABLE = "not comparable"
    MISSING = "no counterpart"


CHANCE = 0.05
"""A split that a sign test gives a larger p is undecided."""


@dataclass(frozen=True)
class Estimate:
    """A direction and, in words, in how many of n it is found, our number, or what is missing.

    ``comparison`` are the numbers of ours that it rests on, equal for entries that rest on the same ones.
    """

    direction: Direction
    text: str
    comparison: tuple[tuple[str, float], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Signs:
    """How many of our numbers lie above, below and on the turn; ``unit`` is what each is of.

    ``votes`` are the units above and below that a sign test counts: seeds, by what most numbers of a seed
    do, or the numbers where they are of no seed.
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
        """How often a coin splits as many votes as unevenly, two-sided."""
        total = sum(self.votes)
        tail = sum(comb(total, k) for k in range(min(self.votes) + 1))
        return min(1.0, 2.0 * tail / 2.0**total)


def signs(value: Value) -> Signs:
    """Which of the numbers lie above zero, which below, and of what they are."""
    above = sum(item.lo > 0 for item in value.items)
    below = sum(item.hi < 0 for item in value.items)
    unit = "seeds" if _of_distinct_seeds(value) else "comparisons"
    return Signs(above, below, len(value.items) - above - below, unit, _votes(value) or (above, below))


def _of_distinct_seeds(value: Value) -> bool:
    """Whether each number is of a seed of its own."""
    return all(value.labels) and len(set(value.labels)) == len(value.items)


def _votes(value: Value) -> tuple[int, int] | None:
    """Seeds most of whose numbers lie above, and below; None where a number is of no seed."""
    if not all(value.labels):
        return None
    votes: dict[str, int] = defaultdict(int)
    for item, label in zip(value.items, value.labels, strict=True):
        votes[label] += (item.lo > 0) - (item.hi < 0)
    return sum(vote > 0 for vote in votes.values()), sum(vote < 0 for vote in votes.values())


def identity(value: Value) -> tuple[tuple[str, float], ...]:
    """The numbers by seed, rounded: a difference in the last bit, or first minus second, is the same one."""
    middles = [round(float(item.lo + item.hi) / 2.0, 9) for item in value.items]
    turned = (
        sorted((label, sign * one + 0.0) for label, one in zip(value.labels, middles, strict=True))
        for sign in (1, -1)
    )
    return tuple(min(turned))


def directed(split: Signs, sign: int, said: str) -> Estimate:
    """One number of no seed has its own sign; of several a sign test tells whether they have one."""
    same, opposite = (split.above, split.below)[::sign]
    alone = split.n == 1 and split.unit != "seeds"
    most = Direction.TIED
    if same != opposite:
        most = Direction.SAME if same > opposite else Direction.OPPOSITE
        most = most if alone or split.by_chance <= CHANCE else Direction.UNDECIDED
    if alone:
        return Estimate(most, said)
    rest = f"opposite in {opposite}, tied in {split.equal}"
    return Estimate(most, f"same direction in {same} of {split.n} {split.unit}, {rest}; {said}")


def statement(kind: str, split: Signs, said: str) -> Estimate:
    """Whether our numbers lie as a statement of this kind says."""
    rest = f"{split.below} below, {split.equal} equal; {said}"
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


def numbers(value: Value, whole: Value | None) -> str:
    """Our number over all, what it is of, and the least and the largest of these."""
    found = [float(item.lo + item.hi) / 2 for item in value.items]
    summary = sum(found) / len(found) if whole is None else float(whole.one().lo)
    ends = "" if len(found) == 1 else f", {min(found):.6g} to {max(found):.6g}"
    return f"ours {summary:.6g} ({_of_what(value)}{ends})"


def _of_what(value: Value) -> str:
    """``n = 20`` where each number is of a seed of its own; else what the numbers are."""
    if _of_distinct_seeds(value):
        return f"n = {len(value.items)}"
    if value.seeds:
        return f"of {value.seeds} seeds"
    seeds = len(set(filter(None, value.labels)))
    found = "one number" if len(value.items) == 1 else f"{len(value.items)} numbers"
    return f"{found} of {seeds} seeds" if seeds else f"{found}, not seeds"
