"""The numbers of a figure: text as it stands in the figure's CSV, and read from there when it is drawn."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search_to_signal.analysis.tables.cells import Cell
from search_to_signal.analysis.tables.files import to_csv
from search_to_signal.numerics import Floats

Value = str | int | float | None


@dataclass(frozen=True)
class Frame:
    """Rows of a CSV; every value is text, and missing numbers are empty."""

    rows: tuple[Mapping[str, str], ...]

    @classmethod
    def read(cls, text: str) -> "Frame":
        """From the text of a CSV with a heading."""
        return cls(tuple(csv.DictReader(io.StringIO(text))))

    def where(self, **values: str) -> "Frame":
        """The rows with these values."""
        return Frame(tuple(row for row in self.rows if all(row[key] == v for key, v in values.items())))

    def names(self, column: str) -> list[str]:
        """The distinct texts of a column, in the order of the rows."""
        return list(dict.fromkeys(row[column] for row in self.rows))

    def numbers(self, column: str = "value") -> Floats:
        """(rows,) numbers of a column; NaN where missing."""
        return np.array([float(row[column] or "nan") for row in self.rows])

    def number(self, column: str = "value") -> float:
        """The number of the only row; NaN where there is no row."""
        return float(self.rows[0][column] or "nan") if self.rows else float("nan")

    def mean(self, column: str = "value") -> float:
        """Mean of the numbers; NaN where one is missing, as in tables, or none is there."""
        found = self.numbers(column)
        return float(found.mean()) if len(found) else float("nan")

    def known(self, column: str = "value") -> "Frame":
        """The rows that have a number."""
        return Frame(tuple(row for row in self.rows if row[column]))


def lines(columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    """The text of a CSV with all digits; None is empty."""
    return to_csv([list(columns), *([_text(value) for value in row] for row in rows)])


def value_of(cell: Cell) -> float | None:
    """The number of a cell, None where it has none."""
    return float(cell.value) if isinstance(cell.value, int | float) else None


def _text(value: Value) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)
