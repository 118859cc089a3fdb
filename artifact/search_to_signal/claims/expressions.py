"""Formulas over published numbers: a small subset of Python's syntax, evaluated on intervals.

    mean(core_seeds["Final best", "Condition=Native"]) - mean(core_seeds["Final best", "Condition=Frozen"])

A name is another claim or ``value``, the number being checked. TABLE[COLUMN, CONDITIONS...] gives the cells
of a column; a cell of text gives the numbers in it, and [k] the k-th of them. There are numbers, + - * /,
comparisons, and mean, sd, sum, min, max, all, abs, power, count (of rows), size (of numbers), names
(in a cell that lists them), is_share, is_share_change and is_mean_share. Anything else is refused.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, reduce
from itertools import product
from math import ceil, floor, prod

from search_to_signal.base.errors import LedgerError
from search_to_signal.claims import intervals
from search_to_signal.claims.intervals import Interval, exactly, truth
from search_to_signal.claims.tables import ClaimTable, cell_name, selected

# Whether a published percentage can come from whole counts (the GRIM test, Brown and Heathers 2017).

_MOST_TRIED = 100_000


def is_share(percent: Interval, total: Interval) -> Interval:
    """Return whether k / n gives this percentage for a whole n in ``total`` and a whole 0 <= k <= n."""
    return _possible(Interval(max(percent.lo, Fraction(0)), min(percent.hi, Fraction(100))), total)


def is_share_change(points: Interval, total: Interval) -> Interval:
    """Return whether two shares of one whole n in ``total`` can differ by this, so -n <= k <= n."""
    return _possible(Interval(max(points.lo, Fraction(-100)), min(points.hi, Fraction(100))), total)


def is_mean_share(percent: Interval, totals: Sequence[Interval]) -> Interval:
    """Return whether this percentage can be the mean of shares, one whole count of each total."""
    for total in totals:
        if ceil(total.lo) != floor(total.hi) or total.lo <= 0:
            raise LedgerError(f"a total of {total} is no single count: give totals that are")
    sizes = sorted(ceil(total.lo) for total in totals)
    if not sizes or prod(size + 1 for size in sizes[:-1]) > _MOST_TRIED:
        raise LedgerError(f"is_mean_share is given totals of {sizes}: give small counts")
    *tried, largest = sizes
    lo, hi = percent.lo * len(sizes), percent.hi * len(sizes)
    for counts in product(*(range(size + 1) for size in tried)):
        others = sum((Fraction(100 * k, size) for k, size in zip(counts, tried, strict=True)), Fraction(0))
        # The rest of the whole has to be a share of the largest total.
        rest = Interval(max(lo - others, Fraction(0)), min(hi - others, Fraction(100)))
        if rest.lo <= rest.hi and _some_count(rest, Fraction(largest, 100)):
            return truth(True, True)
    return truth(False, False)


def _possible(percent: Interval, total: Interval) -> Interval:
    totals = range(ceil(total.lo), floor(total.hi) + 1)
    if len(totals) > _MOST_TRIED:
        raise LedgerError(f"a share is of a total of {total}: give a count")
    possible = percent.lo <= percent.hi and any(_some_count(percent, Fraction(n, 100)) for n in totals)
    return truth(possible, possible)


def _some_count(percent: Interval, scale: Fraction) -> bool:
    return ceil(percent.lo * scale) <= floor(percent.hi * scale)


@dataclass(frozen=True)
class Value:
    """Numbers in order, each with the label of its row (its seed), and the number of rows behind them.

    ``seeds`` is the number of seeds behind an aggregate such as a mean.
    """

    items: tuple[Interval, ...]
    labels: tuple[str, ...]
    rows: int = 0
    seeds: int = 0

    @staticmethod
    def of(*items: Interval) -> "Value":
        """Make a value of numbers without labels."""
        return Value(items, ("",) * len(items))

    def one(self) -> Interval:
        """Return the only number; raises LedgerError when there is none or more than one."""
        if len(self.items) != 1:
            raise LedgerError(
                f"a check gives {len(self.items)} numbers where one is meant: correct its formula"
            )
        return self.items[0]


@dataclass(frozen=True)
class Scope:
    """The names that a formula may use: tables by name, and claims by id.

    ``cells`` are numbers in the place of the tables' own, by the names of cells.
    """

    tables: Mapping[str, ClaimTable]
    claims: Mapping[str, Interval]
    cells: Mapping[str, Interval] = field(default_factory=dict)


@cache
def parse(text: str) -> ast.expr:
    """Parse a formula into a syntax tree; raises LedgerError when it is not one expression."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise LedgerError(f"cannot read the formula {text!r}: {error.msg}") from error


def evaluate(text: str, scope: Scope) -> Value:
    """Evaluate a formula; raises LedgerError for syntax that is not allowed and for unknown names."""
    try:
        return value_of(parse(text), scope)
    except LedgerError as error:
        raise LedgerError(f"{error} (in {text!r})") from error


def references(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the tables and claims that a formula names, each with the node that reads it."""
    match node:
        case (
            ast.Subscript(value=ast.Name(id=name))
            | ast.Subscript(value=ast.Subscript(value=ast.Name(id=name)))
        ):
            yield name, node
            return
    if isinstance(node, ast.Name):
        yield node.id, node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and child is node.func):
            yield from references(child)


def value_of(node: ast.expr, scope: Scope) -> Value:
    """Evaluate a formula or a part of it; raises LedgerError."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Value.of(exactly(Fraction(str(number))))
        case ast.Name(id=name) if name in scope.claims:
            return Value.of(scope.claims[name])
        case ast.List(elts=parts):
            values = [value_of(part, scope) for part in parts]
            labels = tuple(label for value in values for label in value.labels)
            return Value(tuple(item for value in values for item in value.items), labels)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value = value_of(inner, scope)
            return Value(tuple(-item for item in value.items), value.labels)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _paired(_OPERATORS[type(op)], value_of(left, scope), value_of(right, scope))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARISONS for op in ops
        ):
            sides = [value_of(node, scope) for node in (left, *others)]
            truths = [_paired(_COMPARISONS[type(op)], sides[i], sides[i + 1]) for i, op in enumerate(ops)]
            return reduce(lambda a, b: _paired(intervals.least, a, b), truths)
        case ast.Call(func=ast.Name(id="names"), args=[cell], keywords=[]):
            return Value.of(exactly(len(text_of(cell, scope).split(","))))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _called(name, [value_of(argument, scope) for argument in arguments])
        case ast.Subscript(value=ast.Name(id=name), slice=key) if name in scope.tables:
            return _cells(scope.tables[name], key, scope.cells)
        case ast.Subscript(
            value=ast.Subscript() | ast.List() as inner, slice=ast.Constant(value=int() as place)
        ):
            return Value.of(*value_of(inner, scope).items[place : place + 1])
    raise LedgerError(f"a formula may not hold {ast.unparse(node)!r}")


def _cells(table: ClaimTable, key: ast.expr, named: Mapping[str, Interval]) -> Value:
    rows, heading = selected(table, key)
    items, labels = list[Interval](), list[str]()
    for row in rows:
        for k, text in enumerate(table.numbers(row, heading)):
            known = named.get(cell_name(table, row, heading, k)) if named else None
            items.append(known or table.interval(row, heading, text))
            labels.append(row.get("Seed", ""))
    return Value(tuple(items), tuple(labels), len(rows))


def _paired(apply: Callable[[Interval, Interval], Interval], left: Value, right: Value) -> Value:
    """Apply an operator number by number; a single number is paired with all. Raises for unequal seeds."""
    size = len(left.items) if len(right.items) == 1 else len(right.items)
    (a, seeds), (b, other_seeds) = _repeated(left, size), _repeated(right, size)
    if any(seed != other and seed and other for seed, other in zip(seeds, other_seeds, strict=True)):
        raise LedgerError(f"a check pairs the seeds {', '.join(seeds)} with {', '.join(other_seeds)}")
    labels = tuple(seed or other for seed, other in zip(seeds, other_seeds, strict=True))
    return Value(tuple(map(apply, a, b)), labels)


def _repeated(value: Value, size: int) -> tuple[tuple[Interval, ...], tuple[str, ...]]:
    if len(value.items) not in (1, size):
        raise LedgerError(f"a check pairs {len(value.items)} numbers with {size}")
    times = size if len(value.items) == 1 else 1
    return value.items * times, value.labels * times


def _called(name: str, arguments: list[Value]) -> Value:
    match name, arguments:
        case "count", [value]:
            return Value.of(exactly(value.rows))
        case "power", [base, exponent]:
            return Value.of(intervals.power(base.one(), exponent.one()))
        case "abs", [value]:
            return Value(tuple(map(abs, value.items)), value.labels)
        case "size", [value]:
            return Value.of(exactly(len(value.items)))
        case "is_share", [percent, total]:
            return Value.of(is_share(percent.one(), total.one()))
        case "is_share_change", [points, total]:
            return Value.of(is_share_change(points.one(), total.one()))
        case "is_mean_share", [percent, totals]:
            return Value.of(is_mean_share(percent.one(), totals.items))
        case name, [value] if name in AGGREGATES and value.items:
            seeds = len(set(filter(None, value.labels)))
            return Value((AGGREGATES[name](value.items),), ("",), seeds=seeds)
    raise LedgerError(f"{name} is given too few, too many or no numbers")


_OPERATORS: dict[type[ast.operator], Callable[[Interval, Interval], Interval]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Interval, Interval], Interval]] = {
    ast.Lt: Interval.below,
    ast.LtE: Interval.at_most,
    ast.Gt: lambda a, b: b.below(a),
    ast.GtE: lambda a, b: b.at_most(a),
}
# Each makes one number of many; all of them of one evidence layer (the ledger refuses others).
AGGREGATES: dict[str, Callable[[Sequence[Interval]], Interval]] = {
    "mean": intervals.mean,
    "sd": intervals.sd,
    "sum": intervals.total,
    "min": intervals.smallest,
    "max": intervals.largest,
    "all": intervals.smallest,
}


def format_numbers(node: ast.expr, scope: Scope) -> str:
    """Format the numbers of a name or a selection of cells, without their rounding."""
    return ", ".join(f"{float(item.lo + item.hi) / 2:.10g}" for item in value_of(node, scope).items)


def text_of(node: ast.expr, scope: Scope) -> str:
    """Return the text of one cell; raises LedgerError for a formula that does not select exactly one."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=key) if name in scope.tables:
            rows, heading = selected(scope.tables[name], key)
            if len(rows) == 1:
                return rows[0][heading]
    raise LedgerError(f"{ast.unparse(node)!r} is not one cell of text")
