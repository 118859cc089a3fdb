"""A cell as the page shows it: its text, and what leads from it to the records."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from search_to_signal.analysis.page.tracing import line_ranges
from search_to_signal.analysis.results import Origin
from search_to_signal.analysis.tables.cells import Cell, Table

_LONGEST = 60


@dataclass(frozen=True)
class ShownCell:
    """Text of a cell, its number in full with n, its formula, its records in short, and the trace command."""

    text: str
    value: str
    formula: str
    records: str
    command: str


@dataclass(frozen=True)
class ShownTable:
    """A table of the page; ``rows`` are (label, cells)."""

    table: Table
    rows: tuple[tuple[str, tuple[ShownCell, ...]], ...]

    @property
    def command(self) -> str:
        """The trace command of any of its cells, in words."""
        return f"s2s trace . {self.table.name} ROW COLUMN"


def show_table(table: Table) -> ShownTable:
    """A table with the way back from every cell."""
    rows = tuple(
        (
            row.label,
            tuple(_cell(table, row.label, c, cell) for c, cell in zip(table.columns, row.cells, strict=True)),
        )
        for row in table.rows
    )
    return ShownTable(table, rows)


def _cell(table: Table, row: str, column: str, cell: Cell) -> ShownCell:
    full = cell.text() if cell.value is None else repr(cell.value)
    spread = "" if cell.spread is None else f" ± {cell.spread!r}"
    command = f"s2s trace . {shlex.join([table.name, row, column])}"
    return ShownCell(
        cell.text(), f"{full}{spread}, n = {cell.n}", cell.formula, short_origins(cell.origins), command
    )


def short_origins(origins: Sequence[Origin]) -> str:
    """Origins of equal files and lines as one: ``cohort/{native-s1,native-s2}/steps.jsonl: all lines``."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for origin in origins:
        path = PurePosixPath(origin.path)
        lines = line_ranges(origin.lines)
        if len(lines) > _LONGEST:
            lines = f"{len(origin.lines or ())} lines"
        groups.setdefault((path.parent.parent.as_posix(), path.name, lines), []).append(path.parent.name)
    return "; ".join(_braced(*key, folders) for key, folders in groups.items())


def _braced(above: str, name: str, lines: str, folders: Sequence[str]) -> str:
    inner = folders[0] if len(folders) == 1 else f"{{{','.join(folders)}}}"
    path = "/".join(part for part in (above if above != "." else "", inner, name) if part)
    return f"{path}: {lines}"
