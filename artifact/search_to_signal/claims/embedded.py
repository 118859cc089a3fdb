"""Our own estimate of a published quantity, from the tables of a report: shown beside, never pooled.

An estimate at embedded scale is of another model on smaller instances. It shares the estimator with the
published number, and confirms nothing about it.
"""

import ast
from collections.abc import Mapping

from search_to_signal.claims.expressions import Scope, Value, evaluate, parse
from search_to_signal.claims.intervals import Interval
from search_to_signal.claims.ledger import Entry
from search_to_signal.claims.tables import Table
from search_to_signal.errors import LedgerError


def estimate(entry: Entry, report: Mapping[str, Table]) -> str:
    """Our mean, the range of our seeds, and for a difference how many seeds share the published sign.

    Empty when the entry names no estimator or the report does not hold its rows yet.
    """
    formula = entry.checks.embedded
    if not formula:
        return ""
    try:
        value = evaluate(formula, Scope(report, {}))
    except LedgerError:
        return ""
    if not value.items:
        return ""
    return _seeds(value) + _direction(formula, value, entry.published)


def _seeds(value: Value) -> str:
    numbers = [float(item.lo + item.hi) / 2 for item in value.items]
    if len(numbers) == 1:
        return f"{numbers[0]:.6g}"
    mean = sum(numbers) / len(numbers)
    return f"{mean:.6g} (n = {len(numbers)}, seeds {min(numbers):.6g} to {max(numbers):.6g})"


def _direction(formula: str, value: Value, published: Interval | None) -> str:
    node = parse(formula)
    if published is None or not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
        return ""
    sign = 1 if published.lo > 0 else -1 if published.hi < 0 else 0
    same = sum(1 for item in value.items if item.lo * sign > 0)
    return f"; {same} of {len(value.items)} with the published sign"
