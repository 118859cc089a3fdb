"""Interval arithmetic on rounded numbers: a published number is the interval of all numbers that round to it.

Bounds are exact fractions and intervals are closed, so that both rounding half up and rounding half to even
fit. Results of + - * / are tight when every number occurs once in a formula; where one occurs twice they may
be too wide, never too narrow. Truth values are intervals too: [1, 1] is true for all numbers that rounding
allows, [0, 0] for none, [0, 1] for some. What is a weighted sum of named numbers carries that sum along.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import pairwise, product
from math import isqrt
from operator import add

from search_to_signal.base.errors import LedgerError

_ROOT_SCALE = 10**20
_MOST_OPEN = 12


@dataclass(frozen=True)
class Linear:
    """A weighted sum of numbers by name, and a constant."""

    constant: Fraction = Fraction(0)
    weights: Mapping[str, Fraction] = field(default_factory=dict)

    def __add__(self, other: "Linear") -> "Linear":
        zero = Fraction(0)
        weights = {
            name: self.weights.get(name, zero) + other.weights.get(name, zero)
            for name in {**self.weights, **other.weights}
        }
        return Linear(self.constant + other.constant, {name: w for name, w in weights.items() if w})

    def scaled(self, factor: Fraction) -> "Linear":
        """Return the sum times a factor."""
        return Linear(self.constant * factor, {name: w * factor for name, w in self.weights.items()})

    def __mul__(self, other: "Linear") -> "Linear | None":
        if not self.weights:
            return other.scaled(self.constant)
        return None if other.weights else self.scaled(other.constant)


@dataclass(frozen=True)
class Interval:
    """Every number from ``lo`` to ``hi``, both included; ``linear`` is None where it is no sum of numbers."""

    lo: Fraction
    hi: Fraction
    linear: Linear | None = field(default=None, compare=False)

    def __add__(self, other: "Interval") -> "Interval":
        linear = self.linear + other.linear if self.linear and other.linear else None
        return Interval(self.lo + other.lo, self.hi + other.hi, linear)

    def __neg__(self) -> "Interval":
        return Interval(-self.hi, -self.lo, self.linear and self.linear.scaled(Fraction(-1)))

    def __sub__(self, other: "Interval") -> "Interval":
        return self + (-other)

    def __mul__(self, other: "Interval") -> "Interval":
        corners = [a * b for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        linear = self.linear * other.linear if self.linear and other.linear else None
        return Interval(min(corners), max(corners), linear)

    def __truediv__(self, other: "Interval") -> "Interval":
        if other.lo <= 0 <= other.hi:
            raise LedgerError(f"a check divides by {other}, which may be zero: correct its formula")
        by = other.linear
        inverse = Linear(1 / by.constant) if by and by.constant and not by.weights else None
        return self * Interval(1 / other.hi, 1 / other.lo, inverse)

    def __abs__(self) -> "Interval":
        low = Fraction(0) if self.lo <= 0 <= self.hi else min(abs(self.lo), abs(self.hi))
        return Interval(low, max(abs(self.lo), abs(self.hi)))

    def __str__(self) -> str:
        return f"[{float(self.lo):.10g}, {float(self.hi):.10g}]"

    def meets(self, other: "Interval") -> bool:
        """Whether the intervals have a number in common."""
        return self.lo <= other.hi and other.lo <= self.hi

    def below(self, other: "Interval") -> "Interval":
        """Return the truth value of self < other."""
        return truth(self.hi < other.lo, self.lo < other.hi)

    def at_most(self, other: "Interval") -> "Interval":
        """Return the truth value of self <= other."""
        return truth(self.hi <= other.lo, self.lo <= other.hi)


def exactly(value: Fraction | int) -> Interval:
    return Interval(Fraction(value), Fraction(value), Linear(Fraction(value)))


def truth(always: bool, possibly: bool) -> Interval:
    """Make a truth value: true for all (``always``) or some (``possibly``) numbers that rounding allows."""
    return Interval(Fraction(always), Fraction(possibly))


def is_number(text: str) -> bool:
    """Whether a text is one finite decimal number."""
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False


@lru_cache(maxsize=4096)
def rounded(text: str, unit: Fraction | None = None) -> Interval:
    """Return the numbers that round to ``text``: half a unit to either side, by default of its last decimal.

    A whole number is a count and exact unless a unit is given. Raises LedgerError for text that is no number.
    """
    if not is_number(text):
        raise LedgerError(f"{text!r} is no number: correct the published table or claim")
    value = Decimal(text)
    if unit is None:
        decimals = -int(value.as_tuple().exponent)
        unit = Fraction(1, 10**decimals) if decimals > 0 else Fraction(0)
    if not unit:
        return exactly(Fraction(value))
    return Interval(Fraction(value) - unit / 2, Fraction(value) + unit / 2)


def power(base: Interval, exponent: Interval) -> Interval:
    """Return base ** exponent of whole numbers; raises LedgerError for others."""
    if any(i.lo != i.hi or i.lo.denominator != 1 for i in (base, exponent)) or base.lo == 0:
        raise LedgerError(f"a check raises {base} to {exponent}: give whole numbers")
    return exactly(base.lo ** int(exponent.lo))


def total(items: Sequence[Interval]) -> Interval:
    return reduce(add, items)


def least(first: Interval, second: Interval) -> Interval:
    """Return the smaller of two numbers; for two truth values, their conjunction."""
    return Interval(min(first.lo, second.lo), min(first.hi, second.hi))


def smallest(items: Sequence[Interval]) -> Interval:
    return reduce(least, items)


def largest(items: Sequence[Interval]) -> Interval:
    return Interval(max(item.lo for item in items), max(item.hi for item in items))


def mean(items: Sequence[Interval]) -> Interval:
    """Return the mean; its bounds are tight, since it grows with every number."""
    return total(items) / exactly(len(items))


def sd(items: Sequence[Interval]) -> Interval:
    """Return the sample standard deviation (ddof 1); tight up to rounding its roots outward at 1e-20.

    The sum of squares about the mean is convex, so its largest value lies at a corner of the box, where each
    number is as far as possible from the mean of the others. Both ends of a number are tried only where that
    mean may lie on either side of its middle. The smallest value is the minimum over c of the squared
    distances from c to the intervals.
    """
    if len(items) < 2:
        raise LedgerError(f"a check asks for the deviation of {len(items)} numbers: give 2 or more")
    ends = [_far_ends(item, items) for item in items]
    if (open_ends := sum(len(pair) > 1 for pair in ends)) > _MOST_OPEN:
        raise LedgerError(
            f"a check asks for the deviation of {len(items)} numbers, of which {open_ends} may be above or "
            f"below the mean of the others: give numbers with at most {_MOST_OPEN} such ones"
        )
    corners = product(*ends)
    most = max(_squares(corner) for corner in corners)
    degrees = len(items) - 1
    return Interval(_root(_least_squares(items) / degrees)[0], _root(most / degrees)[1])


def _far_ends(item: Interval, items: Sequence[Interval]) -> tuple[Fraction, ...]:
    """Return the end that is farther from the mean of the other numbers, or both where that is open."""
    if item.lo == item.hi:
        return (item.lo,)
    others = len(items) - 1
    least = (sum((value.lo for value in items), Fraction(0)) - item.lo) / others
    most = (sum((value.hi for value in items), Fraction(0)) - item.hi) / others
    middle = (item.lo + item.hi) / 2
    return (item.hi,) if middle >= most else (item.lo,) if middle <= least else (item.lo, item.hi)


def _squares(values: Sequence[Fraction]) -> Fraction:
    centre = sum(values, Fraction(0)) / len(values)
    return sum(((value - centre) ** 2 for value in values), Fraction(0))


def _least_squares(items: Sequence[Interval]) -> Fraction:
    """Return the minimum over c of the squared distances; between two ends they are one quadratic."""
    ends = sorted({end for item in items for end in (item.lo, item.hi)})
    centres = list(ends)
    for left, right in pairwise(ends):
        near = [i.hi for i in items if i.hi <= left] + [i.lo for i in items if i.lo >= right]
        if near:
            centres.append(min(max(sum(near, Fraction(0)) / len(near), left), right))
    return min(
        sum(((max(i.lo - c, c - i.hi, Fraction(0))) ** 2 for i in items), Fraction(0)) for c in centres
    )


def _root(value: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds of a square root, equal where it is exact."""
    scaled = value * _ROOT_SCALE**2
    below = isqrt(scaled.numerator // scaled.denominator)
    above = below if below * below == scaled else below + 1
    return Fraction(below, _ROOT_SCALE), Fraction(above, _ROOT_SCALE)
