"""Tables whose every cell knows the records behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

from search_to_signal.errors import ConfigError, S2SError

NOTHING = "–"


class NoTableError(S2SError):
    """A table has nothing to be made from, for the reason that the message gives; no error of the data."""


@dataclass(frozen=True)
class Origin:
    """Records behind a value: a file (path relative to the results directory) and its lines.

    ``lines`` are numbered from 1 and rise; None means all of them.
    """

    path: str
    lines: Sequence[int] | None = None


@dataclass(frozen=True)
class Cell:
    """A value with its number of units ``n``, the formula in words, and the records behind it.

    ``value`` is None where the quantity does not exist; ``spread`` is a sample standard deviation over n.
    ``terms`` are numerator and denominator of a ratio whose aggregate is the ratio of their means (D29).
    """

    value: float | int | str | None
    n: int = 1
    formula: str = ""
    origins: tuple[Origin, ...] = ()
    decimals: int = 4
    spread: float | None = None
    terms: tuple[float, float] | None = None

    def text(self) -> str:
        """For people, rounded; a dash where there is no value."""
        if self.value is None:
            return NOTHING
        if isinstance(self.value, str | int):
            return str(self.value)
        spread = "" if self.spread is None else f" ± {self.spread:.{self.decimals}f}"
        return f"{self.value:.{self.decimals}f}{spread}"


@dataclass(frozen=True)
class Row:
    """A row's label, unique in its table, and one cell per column."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table of one evidence layer. ``note`` says what a reader must know, such as units and n."""

    name: str
    title: str
    layer: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    label: str = ""
    note: str = ""

    def row(self, label: str) -> Row:
        """The row of that label; raises ConfigError that lists the labels."""
        rows = {item.label: item for item in self.rows}
        if label not in rows:
            raise ConfigError(f"table {self.name} has no row {label!r}: choose one of {', '.join(rows)}")
        return rows[label]

    def cell(self, row: str, column: str) -> Cell:
        """The cell of a row and a column by name; raises ConfigError that lists the names."""
        found = self.row(row)
        if column not in self.columns:
            known = ", ".join(self.columns)
            raise ConfigError(f"table {self.name} has no column {column!r}: choose one of {known}")
        return found.cells[self.columns.index(column)]

    def text_rows(self) -> list[list[str]]:
        """Heading and rows as rounded text."""
        heading = [self.label, *self.columns]
        return [heading, *([row.label, *(cell.text() for cell in row.cells)] for row in self.rows)]


def percent_cell(part: float, whole: float, formula: str, *origins: Origin, decimals: int = 2) -> Cell:
    """100 part / whole, without a value where whole is zero: absent is not zero."""
    value = None if whole == 0 else 100.0 * part / whole
    return Cell(value, formula=f"{formula}, in percent", origins=origins, decimals=decimals)
