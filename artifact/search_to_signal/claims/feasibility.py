"""Joint feasibility of all published numbers: a linear program over the exact numbers behind the rounding.

Two checks may each hold and still contradict each other. The program looks for one exact number behind every
rounded one such that all linear relations of the ledger hold. A number that one relation derives from exact
numbers alone may lie on the edge between two roundings, as 2 of 64 does, 3.125 %. All others lie inside: a
solution with several measured numbers on their edges is not accepted.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import fmean, stdev

import numpy as np

from search_to_signal.base.errors import LedgerError
from search_to_signal.base.numerics import Floats
from search_to_signal.claims.expressions import Scope, parse, value_of
from search_to_signal.claims.intervals import Interval, Linear, exactly, sd
from search_to_signal.claims.ledger import ClaimEntry, Ledger

# The linear part of the ledger: every check that bounds sums of published numbers, as coefficients.
#
# A number is named by its entry's id. A standard deviation is replaced by its tangent and a bound on the
# error. Checks that are no weighted sums are left out: shares of whole counts, and products of two rounded
# numbers.

_ROUNDING = Fraction(1, 10**9)


class NotLinearError(Exception):
    """A formula, or a part of it, is no weighted sum of published numbers."""


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
        scope = _scope(ledger, bounds)
        for entry in ledger.entries:
            if entry.checks.equals and entry.id in bounds:
                with suppress(NotLinearError, ValueError):
                    (derived,) = _sums(parse(entry.checks.equals), _of_entry(scope, entry))
                    if not derived.weights and bounds[entry.id].lo <= derived.constant <= bounds[entry.id].hi:
                        bounds[entry.id] = exactly(derived.constant)
    scope = _scope(ledger, bounds)
    relations = (r for entry in ledger.entries for r in _relations(entry, _of_entry(scope, entry)))
    return System(bounds, tuple(relations))


def _scope(ledger: Ledger, bounds: Mapping[str, Interval]) -> Scope:
    """The names of formulas, of which every rounded number is a sum of itself."""
    numbers = {
        name: bound if bound.lo == bound.hi else replace(bound, linear=Linear(weights={name: Fraction(1)}))
        for name, bound in bounds.items()
    }
    return Scope(ledger.tables, numbers, numbers)


def _of_entry(scope: Scope, entry: ClaimEntry) -> Scope:
    own = scope.claims.get(entry.id)
    return scope if own is None else replace(scope, claims={**scope.claims, "value": own})


def _items(node: ast.expr, scope: Scope) -> tuple[Interval, ...]:
    """The numbers of a formula; raises NotLinearError where it has none."""
    try:
        return value_of(node, scope).items
    except LedgerError as error:
        raise NotLinearError from error


def _sums(node: ast.expr, scope: Scope) -> list[Linear]:
    items = _items(node, scope)
    sums = [item.linear for item in items if item.linear is not None]
    if len(sums) < len(items):
        raise NotLinearError
    return sums


def _relations(entry: ClaimEntry, scope: Scope) -> Iterator[Relation]:
    checks, zero = entry.checks, Fraction(0)
    if checks.equals and entry.published is not None:
        with suppress(NotLinearError):
            derived, above = _derived(parse(checks.equals), scope)
            (own,) = _sums(ast.Name(id="value"), scope)
            yield Relation(entry.id, own + derived.scaled(Fraction(-1)), zero, above)
    for text in filter(None, (checks.holds, checks.possible)):
        for small, large in _inequalities(parse(text)):
            with suppress(NotLinearError):
                lower, upper = _sums(small, scope), _sums(large, scope)
                size = max(len(lower), len(upper)) if lower and upper else 0
                pairs = (side * (size if len(side) == 1 else 1) for side in (lower, upper))
                for a, b in zip(*pairs, strict=True):
                    yield Relation(entry.id, b + a.scaled(Fraction(-1)), zero, None)


def _derived(node: ast.expr, scope: Scope) -> tuple[Linear, Fraction]:
    """Return a sum and by how much the number may exceed it: 0 for a linear formula.

    Of a sample deviation it is the tangent in the middle of its numbers' bounds. The deviation is convex, so
    it is nowhere below its tangent. Its curvature is at most 1 / ((n - 1) sd), so within the bounds it
    exceeds the tangent by at most half of that times the squared distance.
    """
    match node:
        case ast.Call(func=ast.Name(id="sd"), args=[inner]):
            boxes, sums = _items(inner, scope), _sums(inner, scope)
            middle = [float(box.lo + box.hi) / 2 for box in boxes]
            centre, degrees = fmean(middle), len(boxes) - 1
            size, least = stdev(middle), float(sd(boxes).lo)
            if least <= 0.0:
                raise NotLinearError
            tangent = Linear(Fraction(size))
            for item, at in zip(sums, middle, strict=True):
                slope = Fraction((at - centre) / (degrees * size))
                tangent = tangent + item.scaled(slope) + Linear(-slope * Fraction(at))
            distance = sum(float(box.hi - box.lo) ** 2 / 4 for box in boxes)
            return tangent, Fraction(distance / (2 * degrees * least)) + _ROUNDING
    sums = _sums(node, scope)
    if len(sums) != 1:
        raise NotLinearError
    return sums[0], Fraction(0)


def _inequalities(node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield (smaller, larger) of what a statement requires; a number above max(...) is above each item."""
    match node:
        case ast.Call(func=ast.Name(id="all"), args=[inner]):
            for part in inner.elts if isinstance(inner, ast.List) else [inner]:
                yield from _inequalities(part)
        case ast.Compare(left=first, ops=ops, comparators=others):
            for op, left, right in zip(ops, [first, *others], others, strict=False):
                small, large = (left, right)[:: 1 if isinstance(op, ast.Lt | ast.LtE) else -1]
                yield _without(small, "max"), _without(large, "min")


def _without(node: ast.expr, extreme: str) -> ast.expr:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name == extreme:
            return inner
    return node


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
        above = [] if relation.hi is None else [(1, relation.hi)]
        for sign, bound in [*above, (-1, -relation.lo)]:
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
