"""Tracing of a table's cell to the lines of records behind it, on a terminal and on the page."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from search_to_signal.records.files import read_lines
from search_to_signal.report.results import Origin
from search_to_signal.report.tables.catalogue import Catalogue
from search_to_signal.report.tables.cells import Cell, Row, Table

_WIDTH = 160
_LONGEST = 60
# Columns of estimates, to which the columns Low and High of their table belong.
_ESTIMATES = ("Estimate", "Mean")
_HASH = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")


def line_ranges(lines: Sequence[int] | None) -> str:
    """Format rising line numbers as ranges such as ``1-240, 301``; None means all lines."""
    if lines is None:
        return "all lines"
    if not lines:
        return "no lines"
    return ("line " if len(lines) == 1 else "lines ") + ", ".join(_joined(lines))


def _joined(lines: Sequence[int]) -> Iterator[str]:
    start = last = lines[0]
    for line in lines[1:]:
        if line != last + 1:
            yield _range(start, last)
            start = line
        last = line
    yield _range(start, last)


def _range(start: int, last: int) -> str:
    return f"{start}" if start == last else f"{start}-{last}"


def trace_cell(table: Table, row: str, column: str, directory: Path, shown: int = 0) -> Iterator[str]:
    """Yield lines of text: the number as tables print it, with its interval where the table has one.

    Then its full value, spread, n and formula, and every origin with ``shown`` of its records. Origins are
    below ``directory``. Raises ConfigError for an unknown row or column, OSError when a record file is gone.
    """
    cell = table.cell(row, column)
    interval = ""
    if column in _ESTIMATES and {"Low", "High"} <= set(table.columns):
        interval = f" [{table.cell(row, 'Low').text()}, {table.cell(row, 'High').text()}]"
    yield f"{table.name} / {row} / {column}: {cell.text()}{interval}"
    yield f"  value    {cell.text() if cell.value is None else repr(cell.value)}"
    if cell.spread is not None:
        yield f"  spread   {cell.spread!r} (sample standard deviation)"
    yield f"  n        {cell.n}"
    yield f"  formula  {cell.formula}"
    for origin in cell.origins:
        yield f"  records  {origin.path}: {line_ranges(origin.lines)}"
        wanted = None if origin.lines is None else set(origin.lines)
        numbered = enumerate(read_lines(directory / origin.path), start=1)
        chosen = ((n, line) for n, line in numbered if wanted is None or n in wanted)
        for number, line in islice(chosen, shown):
            # Hashes are shortened to eight digits, and the text to one or two lines of a terminal.
            plain = _HASH.sub(r"\1…", line.decode(errors="replace").rstrip("\n"))
            yield f"    {number}: {plain if len(plain) <= _WIDTH else f'{plain[:_WIDTH]}…'}"


def table_names(tables: Catalogue) -> Iterator[str]:
    """Yield a line per table, and one per absent table with the reason."""
    width = max(map(len, [*(table.name for table in tables.tables), *tables.absent]), default=0)
    for table in tables.tables:
        yield f"{table.name:{width}}  {table.title} ({table.layer}; {len(table.rows)} rows)"
    for name, reason in tables.absent.items():
        yield f"{name:{width}}  absent: {reason}"


def table_parts(table: Table) -> Iterator[str]:
    yield f"{table.name}: {table.title}. {table.note}"
    yield "columns"
    yield from (f"  {column}" for column in table.columns)
    yield f"rows ({table.label})"
    yield from (f"  {row.label}" for row in table.rows)


def row_values(table: Table, row: Row) -> Iterator[str]:
    width = max(map(len, table.columns))
    yield f"{table.name} / {row.label}"
    for column, cell in zip(table.columns, row.cells, strict=True):
        yield f"  {column:{width}}  {cell.text()}  (n = {cell.n})"


def full_value(cell: Cell) -> str:
    """Format a value in full, with its deviation and n."""
    full = cell.text() if cell.value is None else repr(cell.value)
    spread = "" if cell.spread is None else f" ± {cell.spread!r}"
    return f"{full}{spread}, n = {cell.n}"


def trace_command(table: Table, row: str) -> str:
    return f"s2s trace . {shlex.join([table.name, row])} COLUMN"


def formulas(table: Table, column: int) -> list[str]:
    """The formulas of a column, of which rows over seeds have another than rows of a run."""
    return list(dict.fromkeys(row.cells[column].formula for row in table.rows))


def row_origins(row: Row) -> str:
    """The records behind a row, in short."""
    return short_origins([origin for cell in row.cells for origin in cell.origins])


def short_origins(origins: Sequence[Origin]) -> str:
    """Format origins, equal ones merged: ``cohort/{native-s1,native-s2}/steps.jsonl: all lines``."""
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for origin in origins:
        folders, _, name = origin.path.rpartition("/")
        above, _, folder = folders.rpartition("/")
        groups.setdefault((above, name, _short_ranges(origin.lines)), {})[folder] = None
    texts = []
    for (above, name, lines), runs in groups.items():
        inner = "".join(runs) if len(runs) == 1 else f"{{{','.join(runs)}}}"
        texts.append(f"{'/'.join(part for part in (above, inner, name) if part)}: {lines}")
    return "; ".join(texts)


def _short_ranges(lines: Sequence[int] | None) -> str:
    """Format line ranges, or the number of lines where the ranges are longer than ``_LONGEST``."""
    if lines is not None and len(lines) > _LONGEST:
        # Two dozen ranges are always longer than that.
        first = list(islice(_joined(lines), 24))
        if len(first) == 24:
            return f"{len(lines)} lines"
    text = line_ranges(lines)
    return text if len(text) <= _LONGEST else f"{len(lines or ())} lines"
