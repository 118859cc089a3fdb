"""Joint feasibility of all published numbers: a linear program over the exact numbers behind the rounding.

Two checks may each hold and still contradict each other. The program looks for one exact number behind every
rounded one such that all linear relations of the ledger hold. A number that one relation derives from exact
numbers alone may lie on the edge between two roundings, as 2 of 64 does, 3.125 %. All others lie inside: a
solution with several measured numbers on their edges is not accepted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from search_to_signal.claims.intervals import Interval
from search_to_signal.claims.ledger import Ledger
from search_to_signal.claims.linear import Relation, linear_system
from search_to_signal.errors import LedgerError
from search_to_signal.numerics import Floats

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
