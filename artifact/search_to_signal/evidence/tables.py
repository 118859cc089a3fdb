"""Two forms of the same table held against each other, value by value."""

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

_LONG_FORM = ["row", "column", "value", "spread", "n"]
# Another processor may round the last bits of a mean otherwise.
_TOLERANCE = 1e-9


def table_differences(shipped: Path, rebuilt: Path) -> Iterator[str]:
    """Where CSV tables below two directories differ, a line each with both values."""
    names = {path.relative_to(shipped).as_posix() for path in shipped.rglob("*.csv")}
    made = {path.relative_to(rebuilt).as_posix() for path in rebuilt.rglob("*.csv")}
    for name in sorted(names | made):
        if name not in made:
            yield f"{name}: shipped, and the records give no such table"
        elif name not in names:
            yield f"{name}: the records give it, and it is not shipped"
        elif (shipped / name).read_bytes() != (rebuilt / name).read_bytes():
            try:
                yield from (f"{name}: {line}" for line in _cells(shipped / name, rebuilt / name))
            except (csv.Error, UnicodeDecodeError) as error:
                yield f"{name}: it is no table ({error})"


def _cells(shipped: Path, rebuilt: Path) -> Iterator[str]:
    first, second = (_read(path) for path in (shipped, rebuilt))
    for place in {**first, **second}:
        one, other = first.get(place, "(absent)"), second.get(place, "(absent)")
        if not _same(one, other):
            yield f"{place}: shipped {one} | rebuilt {other}"


def _read(path: Path) -> dict[str, str]:
    with path.open(encoding="utf-8", newline="") as lines:
        head, *rows = list(csv.reader(lines)) or [[]]
    if head == _LONG_FORM:
        met = Counter[str]()
        cells: dict[str, str] = {}
        for row in rows:
            where = " / ".join(row[:2])
            met[where] += 1
            again = f" (line {met[where]} of this name)" if met[where] > 1 else ""
            cells |= {f"{where}{again}, {name}": text for name, text in _named(head[2:], row[2:])}
        return cells
    return {
        f"line {number}, {name}": text
        for number, row in enumerate([head, *rows], start=1)
        for name, text in _named(head, row)
    }


def _named(head: Sequence[str], row: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every text of a row with its column; one behind the head has its number alone."""
    for number, text in enumerate(row):
        yield head[number] if number < len(head) else f"column {number + 1}", text


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return math.isclose(float(one), float(other), rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    except ValueError:
        return False
