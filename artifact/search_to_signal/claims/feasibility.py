"""Joint feasibility of all published numbers: a linear program over the exact numbers behind the rounding.

Two checks may each hold and still contradict each other. The program looks for one exact number behind every
rounded one such that all linear relations of the ledger hold. A number that one relation derives from exact
numbers alone may lie on the edge between two roundings, as 2 of 64 does, 3.125 %. All others lie inside: a
solution with several measured numbers on their edges is not accepted.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import fmean, stdev

import numpy as np

from search_to_signal.base.errors import LedgerError
from search_to_signal.base.numerics import Floats
from search_to_signal.claims.expressions import parse
from search_to_signal.claims.intervals import Interval, exactly, is_number, sd
from search_to_signal.claims.ledger import ClaimEntry, Ledger
from search_to_signal.claims.tables import ClaimTable, cell_name, selected

# The linear part of the ledger: every check that bounds sums of published numbers, as coefficients.
#
# A number is named by its entry's id. A standard deviation is replaced by its tangent and a bound on the
# error. Checks that are no weighted sums are left out: shares of whole counts, and products of two rounded
# numbers.

_ROUNDING = Fraction(1, 10**9)


class NotLinearError(Exception):
    """A formula, or a part of it, is no weighted sum of published numbers."""


@dataclass(frozen=True)
class Linear:
    """A weighted sum of numbers by name, and a constant."""

    constant: Fraction = Fraction(0)
    weights: Mapping[str, Fraction] = field(default_factory=dict)

    def __add__(self, other: "Linear") -> "Linear":
        names = {**self.weights, **other.weights}
        zero = Fraction(0)
        weights = {name: self.weights.get(name, zero) + other.weights.get(name, zero) for name in names}
        return Linear(self.constant + other.constant, {name: w for name, w in weights.items() if w})

    def scaled(self, factor: Fraction) -> "Linear":
        """Return the sum times a factor."""
        return Linear(self.constant * factor, {name: w * factor for name, w in self.weights.items()})


@dataclass(frozen=True)
class Relation:
    """``lo`` <= sum <= ``hi`` for a check of an entry; ``hi`` is None where there is no upper bound."""

    entry: str
    sum: Linear
    lo: Fraction
    hi: Fraction | None


@dataclass(frozen=True)
class System:
    """The linear relations of a ledger and the bounds of its numbers; exact numbers are filled in."""

    bounds: Mapping[str, Interval]
    relations: tuple[Relation, ...]


def linear_system(ledger: Ledger) -> System:
    """Build the linear relations between a ledger's numbers from its checks."""
    bounds = {entry.id: entry.published for entry in ledger.entries if entry.published is not None}
    for _ in range(2):  # A number that follows from exact numbers alone is exact and can then be a weight.
        fixed = {entry.id: _fixed(entry, bounds, ledger) for entry in ledger.entries}
        bounds |= {name: exactly(value) for name, value in fixed.items() if value is not None}
    relations = (r for entry in ledger.entries for r in _relations(entry, _Reader(ledger, bounds, entry)))
    return System(bounds, tuple(relations))


def _fixed(entry: ClaimEntry, bounds: Mapping[str, Interval], ledger: Ledger) -> Fraction | None:
    if not entry.checks.equals or entry.id not in bounds:
        return None
    try:
        (derived,) = _Reader(ledger, bounds, entry).read(parse(entry.checks.equals))
    except (NotLinearError, ValueError):
        return None
    inside = bounds[entry.id].lo <= derived.constant <= bounds[entry.id].hi
    return derived.constant if inside and not derived.weights else None


def _relations(entry: ClaimEntry, reader: "_Reader") -> Iterator[Relation]:
    if entry.checks.equals and entry.published is not None:
        with suppress(NotLinearError):
            derived, above = reader.derived(parse(entry.checks.equals))
            gap = reader.number(entry.id) + derived.scaled(Fraction(-1))
            yield Relation(entry.id, gap, Fraction(0), above)
    for text in filter(None, (entry.checks.holds, entry.checks.possible)):
        for gap in reader.gaps(parse(text)):
            yield Relation(entry.id, gap, Fraction(0), None)


@dataclass(frozen=True)
class _Reader:
    """A reader of the formulas of one entry."""

    ledger: Ledger
    bounds: Mapping[str, Interval]
    entry: ClaimEntry

    def number(self, name: str) -> Linear:
        """Return a published number as a variable, or as a constant where it is exact."""
        bound = self.bounds[name]
        return Linear(bound.lo) if bound.lo == bound.hi else Linear(weights={name: Fraction(1)})

    def derived(self, node: ast.expr) -> tuple[Linear, Fraction]:
        """Return a sum and by how much the number may exceed it: 0 for a linear formula."""
        match node:
            case ast.Call(func=ast.Name(id="sd"), args=[inner]):
                return self._tangent(self.read(inner))
        sums = self.read(node)
        if len(sums) != 1:
            raise NotLinearError
        return sums[0], Fraction(0)

    def _tangent(self, items: Sequence[Linear]) -> tuple[Linear, Fraction]:
        """Return the tangent of a sample deviation in the middle of its numbers' bounds, and its error.

        The deviation is convex, so it is nowhere below its tangent. Its curvature is at most
        1 / ((n - 1) sd), so within the bounds it exceeds the tangent by at most half of that times the
        squared distance.
        """
        boxes = [self._bounds(item) for item in items]
        middle = [float(box.lo + box.hi) / 2 for box in boxes]
        centre, degrees = fmean(middle), len(items) - 1
        size, least = stdev(middle), float(sd(boxes).lo)
        if least <= 0.0:
            raise NotLinearError
        tangent = Linear(Fraction(size))
        for item, at in zip(items, middle, strict=True):
            slope = Fraction((at - centre) / (degrees * size))
            tangent = tangent + item.scaled(slope) + Linear(-slope * Fraction(at))
        distance = sum(float(box.hi - box.lo) ** 2 / 4 for box in boxes)
        return tangent, Fraction(distance / (2 * degrees * least)) + _ROUNDING

    def _bounds(self, item: Linear) -> Interval:
        lo = hi = item.constant
        for name, weight in item.weights.items():
            ends = (weight * self.bounds[name].lo, weight * self.bounds[name].hi)
            lo, hi = lo + min(ends), hi + max(ends)
        return Interval(lo, hi)

    def read(self, node: ast.expr) -> list[Linear]:
        """Return the sums of a formula; raises NotLinearError."""
        match node:
            case ast.Constant(value=int() | float() as number):
                return [Linear(Fraction(str(number)))]
            case ast.Name(id="value"):
                return [self.number(self.entry.id)]
            case ast.Name(id=name) if name in self.bounds:
                return [self.number(name)]
            case ast.List(elts=parts):
                return [item for part in parts for item in self.read(part)]
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return [item.scaled(Fraction(-1)) for item in self.read(inner)]
            case ast.BinOp(left=left, op=op, right=right):
                return [_combined(op, a, b) for a, b in _pairs(self.read(left), self.read(right))]
            case ast.Call(func=ast.Name(id=("sum" | "mean") as name), args=[inner]):
                items = self.read(inner)
                total = sum(items, Linear())
                return [total if name == "sum" else total.scaled(Fraction(1, len(items)))]
            case ast.Subscript(value=ast.Name(id=name), slice=key) if name in self.ledger.tables:
                return self._cells(self.ledger.tables[name], key)
            case ast.Subscript(
                value=ast.Subscript() | ast.List() as inner, slice=ast.Constant(value=int() as k)
            ):
                return self.read(inner)[k : k + 1]
        raise NotLinearError

    def gaps(self, node: ast.expr) -> Iterator[Linear]:
        """Yield the sums that a statement requires to be nonnegative; nonlinear parts are left out."""
        match node:
            case ast.Call(func=ast.Name(id="all"), args=[ast.List(elts=parts)]):
                for part in parts:
                    yield from self.gaps(part)
            case ast.Call(func=ast.Name(id="all"), args=[inner]):
                yield from self.gaps(inner)
            case ast.Compare(left=first, ops=ops, comparators=others):
                nodes = [first, *others]
                for i, op in enumerate(ops):
                    small, large = (nodes[i], nodes[i + 1])[:: 1 if isinstance(op, ast.Lt | ast.LtE) else -1]
                    yield from self._gaps_between(small, large)

    def _gaps_between(self, small: ast.expr, large: ast.expr) -> Iterator[Linear]:
        try:
            lower, upper = self.read(_each(small, "max")), self.read(_each(large, "min"))
            for a, b in _pairs(lower, upper):
                yield b + a.scaled(Fraction(-1))
        except NotLinearError:
            return

    def _cells(self, table: ClaimTable, key: ast.expr) -> list[Linear]:
        rows, heading = selected(table, key)
        numbers = []
        for row in rows:
            for k, text in enumerate(table.numbers(row, heading)):
                name = cell_name(table, row, heading, k)
                if name in self.bounds:
                    numbers.append(self.number(name))
                elif is_number(text):
                    numbers.append(Linear(table.interval(row, heading, text).lo))
        return numbers


def _each(node: ast.expr, extreme: str) -> ast.expr:
    """Unwrap an extreme: a number above max(...) is above each item, below min(...) below each."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name == extreme:
            return inner
    return node


def _pairs(left: Sequence[Linear], right: Sequence[Linear]) -> list[tuple[Linear, Linear]]:
    size = len(left) if len(right) == 1 else len(right)
    return list(zip(*(list(s) * (size if len(s) == 1 else 1) for s in (left, right)), strict=True))


def _combined(op: ast.operator, a: Linear, b: Linear) -> Linear:
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a + b.scaled(Fraction(-1))
        case ast.Mult() if not a.weights:
            return b.scaled(a.constant)
        case ast.Mult() if not b.weights:
            return a.scaled(b.constant)
        case ast.Div() if not b.weights and b.constant:
            return a.scaled(1 / b.constant)
    raise NotLinearError


_TOLERANCE = 1e-6
_EDGE = 1e-3


@dataclass(frozen=True)
class Feasibility:
    """The result: numbers of relations and numbers, and the entries whose checks contradict each other."""

    relations: int
    numbers: int
    conflicts: tuple[str, ...]

    def summary(self) -> str:
        asked = f"{self.relations} linear relations over {self.numbers} rounded numbers"
        if not self.conflicts:
            return f"joint feasibility: {asked} can hold at once"
        return f"JOINTLY IMPOSSIBLE: {asked} cannot hold at once; least broken at {', '.join(self.conflicts)}"


def check_feasibility(ledger: Ledger) -> Feasibility:
    """Solve the linear program of a ledger; raises LedgerError when the solver fails."""
    linear = linear_system(ledger)
    exact = [relation for relation in linear.relations if not relation.sum.weights]
    broken = [r.entry for r in exact if r.sum.constant < r.lo or (r.hi is not None and r.sum.constant > r.hi)]
    relations = [relation for relation in linear.relations if relation.sum.weights]
    names = sorted({name for relation in relations for name in relation.sum.weights})
    conflicts = (*broken, *_conflicts(relations, linear.bounds, names))
    return Feasibility(len(relations), len(names), tuple(dict.fromkeys(conflicts)))


def _conflicts(
    relations: Sequence[Relation], bounds: Mapping[str, Interval], names: Sequence[str]
) -> list[str]:
    """Return the entries with violated relations where the sum of violations is smallest; empty if feasible.

    Every number is scaled to 0 to 1 between its bounds, every relation by its largest weight. Violations are
    only looked for where there is no solution without them, which takes a fifth of the time to find.
    """
    if not relations:
        return []
    from scipy.optimize import linprog

    derived = [relation for relation in relations if relation.hi is not None]
    on_edge = {name for r in derived if len(r.sum.weights) == 1 for name in r.sum.weights}
    rows, limits, owners = _rows(relations, bounds, names)
    inside = [(0.0, 1.0) if name in on_edge else (_EDGE, 1.0 - _EDGE) for name in names]
    if linprog(np.zeros(len(names)), rows, limits, bounds=inside, method="highs").success:
        return []
    slack = -np.eye(len(rows))
    cost = np.concatenate([np.zeros(len(names)), np.ones(len(rows))])
    ranges = [*inside, *([(0.0, None)] * len(rows))]
    solved = linprog(cost, np.hstack([rows, slack]), limits, bounds=ranges, method="highs")
    if not solved.success:
        raise LedgerError(f"the joint program has no answer: {solved.message}")
    breaches = solved.x[len(names) :]
    return [owner for owner, breach in zip(owners, breaches, strict=True) if breach > _TOLERANCE]


def _rows(
    relations: Sequence[Relation], bounds: Mapping[str, Interval], names: Sequence[str]
) -> tuple[Floats, Floats, list[str]]:
    """Return coefficient rows, limits and entry ids of the constraints row . numbers <= limit."""
    place = {name: i for i, name in enumerate(names)}
    rows, limits, owners = [], [], []
    for relation in relations:
        for sign, bound in _sides(relation):
            row, limit = np.zeros(len(names)), bound - sign * relation.sum.constant
            for name, weight in relation.sum.weights.items():
                span = bounds[name]
                row[place[name]] = sign * weight * (span.hi - span.lo)
                limit -= sign * weight * span.lo
            scale = float(np.abs(row).max())
            rows.append(row / scale)
            limits.append(float(limit) / scale)
            owners.append(relation.entry)
    return np.array(rows), np.array(limits), owners


def _sides(relation: Relation) -> list[tuple[int, Fraction]]:
    """Return (sign, bound) of the constraints sign x sum <= bound, one per side."""
    above = [] if relation.hi is None else [(1, relation.hi)]
    return [*above, (-1, -relation.lo)]
