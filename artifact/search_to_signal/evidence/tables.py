"""Comparison of shipped and rebuilt CSV tables, value by value."""

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

from search_to_signal.records.files import read_regular

_LONG_FORM = ["row", "column", "value", "spread", "n"]
# The last bits of a mean depend on the processor.
_TOLERANCE = 1e-9


def table_differences(shipped: Path, rebuilt: Path) -> Iterator[str]:
    """Yield the differences of the CSV tables below two directories, a line each with both values."""
    shipped_names = {path.relative_to(shipped).as_posix() for path in shipped.rglob("*.csv")}
    rebuilt_names = {path.relative_to(rebuilt).as_posix() for path in rebuilt.rglob("*.csv")}
    for name in sorted(shipped_names | rebuilt_names):
        if name not in rebuilt_names:
            yield f"{name}: shipped, and the records give no such table"
        elif name not in shipped_names:
            yield f"{name}: the records give it, and it is not shipped"
        else:
            yield from (f"{name}: {line}" for line in cell_differences(shipped / name, rebuilt / name))


def cell_differences(shipped: Path, rebuilt: Path) -> Iterator[str]:
    """Yield the differences of two CSV tables, a line each with both values; last bits are none."""
    if read_regular(shipped) == read_regular(rebuilt):
        return
    try:
        yield from _cell_differences(shipped, rebuilt)
    except (csv.Error, UnicodeDecodeError) as error:
        yield f"it is no table ({error})"


def _cell_differences(shipped: Path, rebuilt: Path) -> Iterator[str]:
    shipped_cells, rebuilt_cells = (_read_cells(path) for path in (shipped, rebuilt))
    for place in {**shipped_cells, **rebuilt_cells}:
        first, second = (cells.get(place, "(absent)") for cells in (shipped_cells, rebuilt_cells))
        if not _equal(first, second):
            yield f"{place}: shipped {first} | rebuilt {second}"


def _read_cells(path: Path) -> dict[str, str]:
    """The texts of a table by row and column."""
    lines = StringIO(read_regular(path).decode(), newline="")
    head, *rows = list(csv.reader(lines)) or [[]]
    if head == _LONG_FORM:
        counts = Counter[str]()
        cells: dict[str, str] = {}
        for row in rows:
            where = " / ".join(row[:2])
            counts[where] += 1
            again = f" (line {counts[where]} of this name)" if counts[where] > 1 else ""
            cells |= {f"{where}{again}, {name}": text for name, text in _columns(head[2:], row[2:])}
            # A row that ends before its values would add no cell.
            cells |= {} if len(row) >= len(head) else {f"{where}{again}, cells": str(len(row))}
        return cells
    return {
        f"line {number}, {name}": text
        for number, row in enumerate([head, *rows], start=1)
        for name, text in _columns(head, row)
    }


def _columns(head: Sequence[str], row: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every text of a row with its column's name, or its number where the head is shorter."""
    for number, text in enumerate(row):
        yield head[number] if number < len(head) else f"column {number + 1}", text


def _equal(first: str, second: str) -> bool:
    if first == second:
        return True
    try:
        return math.isclose(float(first), float(second), rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    except ValueError:
        return False
