"""Whether all published numbers can be right at once: a linear program over what they were rounded from.

Each check alone may be met although two of them are not met together. The program looks for one exact number
behind every rounded one such that all linear relations of the ledger hold. A number that one relation derives
from exact numbers alone may lie on the edge between two roundings, as 2 of 64 does, 3.125 %. All others lie
inside: that several measured numbers sit on their edges at once is no explanation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from search_to_signal.claims.intervals import Interval
from search_to_signal.claims.ledger import Ledger
from search_to_signal.claims.linear import Relation, system
from search_to_signal.errors import LedgerError
from search_to_signal.numerics import Floats

_TOLERANCE = 1e-6
_EDGE = 1e-3


@dataclass(frozen=True)
class Feasibility:
    """Over how many relations and numbers was asked, and which entries' checks cannot hold together."""

    relations: int
    numbers: int
    conflicts: tuple[str, ...]

    def summary(self) -> str:
        asked = f"{self.relations} linear relations over {self.numbers} rounded numbers"
        if not self.conflicts:
            return f"joint feasibility: {asked} can hold at once"
        return f"JOINTLY IMPOSSIBLE: {asked} cannot hold at once; least broken at {', '.join(self.conflicts)}"


def feasibility(ledger: Ledger) -> Feasibility:
    """Solve the program; raises LedgerError when the solver gives no answer."""
    found = system(ledger)
    exact = [relation for relation in found.relations if not relation.sum.weights]
    broken = [r.entry for r in exact if r.sum.constant < r.lo or (r.hi is not None and r.sum.constant > r.hi)]
    relations = [relation for relation in found.relations if relation.sum.weights]
    names = sorted({name for relation in relations for name in relation.sum.weights})
    conflicts = (*broken, *_conflicts(relations, found.bounds, names))
    return Feasibility(len(relations), len(names), tuple(dict.fromkeys(conflicts)))


def _conflicts(
    relations: Sequence[Relation], bounds: Mapping[str, Interval], names: Sequence[str]
) -> list[str]:
    """Entries whose relations are broken where the sum of all breaches is least; none when nothing need be.

    Every number is a place from 0 to 1 between its bounds, every relation in units of its largest weight.
    """
    if not relations:
        return []
    from scipy.optimize import linprog

    derived = [relation for relation in relations if relation.hi is not None]
    on_edge = {name for r in derived if len(r.sum.weights) == 1 for name in r.sum.weights}
    rows, limits, owners = _rows(relations, bounds, names)
    slack = -np.eye(len(rows))
    cost = np.concatenate([np.zeros(len(names)), np.ones(len(rows))])
    inside = [(0.0, 1.0) if name in on_edge else (_EDGE, 1.0 - _EDGE) for name in names]
    ranges = [*inside, *([(0.0, None)] * len(rows))]
    solved = linprog(cost, np.hstack([rows, slack]), limits, bounds=ranges, method="highs")
    if not solved.success:
        raise LedgerError(f"the joint program has no answer: {solved.message}")
    breaches = solved.x[len(names) :]
    return [owner for owner, breach in zip(owners, breaches, strict=True) if breach > _TOLERANCE]


def _rows(
    relations: Sequence[Relation], bounds: Mapping[str, Interval], names: Sequence[str]
) -> tuple[Floats, Floats, list[str]]:
    """Rows, limits and entries of: row . places <= limit."""
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
    """sign x sum <= bound, for each side."""
    above = [] if relation.hi is None else [(1, relation.hi)]
    return [*above, (-1, -relation.lo)]
