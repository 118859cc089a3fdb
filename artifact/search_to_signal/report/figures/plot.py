"""A figure: name, caption, the CSV that it is drawn from, and a drawing function.

Equal records give equal bytes.
"""

import base64
import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from search_to_signal.base.numerics import Floats
from search_to_signal.records.files import read_regular
from search_to_signal.report.figures.style import house_style
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.tables.catalogue import Evidence, horizon_note
from search_to_signal.report.tables.cells import to_csv

PNG_DPI = 200

Value = str | int | float | None


@dataclass(frozen=True)
class CsvFrame:
    """The rows of a figure's CSV; every value is text, and missing numbers are empty."""

    rows: tuple[Mapping[str, str], ...]

    @classmethod
    def read(cls, text: str) -> "CsvFrame":
        return cls(tuple(csv.DictReader(io.StringIO(text))))

    def where(self, **values: str) -> "CsvFrame":
        return CsvFrame(tuple(row for row in self.rows if all(row[key] == v for key, v in values.items())))

    def by(self, column: str) -> Iterator[tuple[str, "CsvFrame"]]:
        """Yield every distinct text of a column with its rows, in their order."""
        rows: dict[str, list[Mapping[str, str]]] = {}
        for row in self.rows:
            rows.setdefault(row[column], []).append(row)
        yield from ((name, CsvFrame(tuple(own))) for name, own in rows.items())

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
        values = self.numbers(column)
        return float(values.mean()) if len(values) else float("nan")

    def known(self, column: str = "value") -> "CsvFrame":
        return CsvFrame(tuple(row for row in self.rows if row[column]))


def lines(columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    """Format a CSV with all digits; None is empty."""

    def text(value: Value) -> str:
        return "" if value is None else repr(value) if isinstance(value, float) else str(value)

    return to_csv([list(columns), *([text(value) for value in row] for row in rows)])


@dataclass(frozen=True)
class Plot:
    """A figure; ``table`` returns the text of its CSV or raises NoTableError, ``draw`` reads only that text.

    ``size`` is (width, height) in inches; ``tables`` are the names of tables with the same numbers;
    ``remark`` returns a caption sentence from the CSV's own numbers; ``layers`` are those whose horizon ends
    the caption.
    """

    name: str
    title: str
    caption: str
    table: Callable[[Evidence], str]
    draw: Callable[[Figure, CsvFrame], None]
    size: tuple[float, float] = (7.0, 2.6)
    tables: tuple[str, ...] = ()
    remark: Callable[[CsvFrame], str] | None = None
    layers: tuple[str, ...] = ("cohort",)

    def remarked(self, path: Path) -> "Plot":
        """Return the plot with the remark on the CSV next to ``path`` at the end of its caption."""
        if self.remark is None:
            return self
        frame = CsvFrame.read(path.with_suffix(".csv").read_text(encoding="utf-8"))
        return replace(self, caption=" ".join(f"{self.caption} {self.remark(frame)}".split()))

    def captioned(self, results: Results) -> "Plot":
        """Return the plot with the horizons of the layers that have run at the end of its caption."""
        notes: dict[str, None] = {}
        for layer in self.layers:
            with suppress(NoTableError):
                notes[horizon_note(results, layer)] = None
        return replace(self, caption=" ".join([*self.caption.split(), *notes]))


def write_data(plot: Plot, evidence: Evidence, directory: Path) -> Path:
    """Write the CSV of a figure; returns its path. Raises NoTableError.

    Figures of smoke runs are named smoke_NAME, and say so across their face where they are drawn.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{'smoke_' if evidence.results.smoke else ''}{plot.name}.csv"
    path.write_text(plot.table(evidence), encoding="utf-8")
    return path


def redraw(plot: Plot, path: Path, smoke: bool = False) -> Path:
    """Draw a figure from its CSV into the same directory; returns the path of the PNG."""
    return _drawn(plot.draw, plot.size, path, smoke)


def draw_from_csv(
    name: str, text: str, draw: Callable[[Figure, CsvFrame], None], size: tuple[float, float], out: Path
) -> Path:
    """Write NAME.csv below ``out`` and draw NAME.pdf and NAME.png from its text; returns the PNG's path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.csv"
    path.write_text(text, encoding="utf-8")
    return _drawn(draw, size, path, smoke=False)


def _drawn(
    draw: Callable[[Figure, CsvFrame], None], size: tuple[float, float], path: Path, smoke: bool
) -> Path:
    with house_style():
        figure = Figure(figsize=size, layout="constrained")
        draw(figure, CsvFrame.read(path.read_text(encoding="utf-8")))
        if smoke:  # So that a copy of it is not mistaken for a result.
            look: dict[str, Any] = {
                "fontsize": 3.2 * figure.get_figwidth(),
                "color": "#D55E00",
                "alpha": 0.28,
            }
            place: dict[str, Any] = {"ha": "center", "va": "center", "rotation": 18, "in_layout": False}
            figure.text(0.5, 0.5, "SMOKE RUN – no evidence", **place, **look)
        figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
        figure.set_layout_engine(None)  # panels stay where the first drawing put them
        png = path.with_suffix(".png")
        figure.savefig(png, dpi=PNG_DPI, metadata={"Software": None})
        return png


_PIXELS_PER_INCH = 140


class EmbeddedPicture(NamedTuple):
    """A picture's bytes as a data URL, and its size on the page in pixels."""

    data: str
    width: int
    height: int


def embed_picture(path: Path) -> EmbeddedPicture:
    """Embed a PNG that a plot was drawn to; its letters have one size, however many panels it has."""
    png = read_regular(path)
    pixels = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
    data = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
    return EmbeddedPicture(data, *(round(side / PNG_DPI * _PIXELS_PER_INCH) for side in pixels))
