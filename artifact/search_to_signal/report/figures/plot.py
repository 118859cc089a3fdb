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
from string import ascii_lowercase
from typing import Any, NamedTuple
from zlib import crc32

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from search_to_signal.base.numerics import Floats
from search_to_signal.base.progress import span
from search_to_signal.records.conditions import FROZEN, Condition
from search_to_signal.records.files import read_regular
from search_to_signal.report.figures.style import house_style
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.tables.catalogue import Evidence, horizon_note
from search_to_signal.report.tables.cells import PERCENT, POINTS, to_csv

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


BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, RED, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#777777"

# Colour, marker, line style.
_STYLES: Mapping[str, tuple[str, str, str]] = {
    FROZEN: (BLACK, "s", "--"),
    "native": (BLUE, "o", "-"),
    "factorized": (RED, "^", "-"),
    "tail_weighted": (GREEN, "D", "-."),
    "search_exposure": (PURPLE, "v", ":"),
    "distinct": (ORANGE, "P", "-"),
}
# Of other mappings, whose line is whole, and of mappings under a normalizer.
_HUES, _MARKERS, _DASHES = (ORANGE, SKY), ("P", "X", "*", "h", "d", "<", ">", "p"), ("--", "-.", ":")
NO_NOTES: Mapping[str, str] = {}


def color(condition: str) -> str:
    """Return the colour of a condition: that of its mapping, under whatever normalizer."""
    return _style(condition)[0]


def line_style(condition: str) -> dict[str, Any]:
    """Return colour, marker and dashes of a condition's line."""
    hue, shape, dashes = _style(condition)
    return {"color": hue, "marker": shape, "linestyle": dashes}


def _style(condition: str) -> tuple[str, str, str]:
    """Colour, marker and line style; of a name that is not listed they follow from it alone."""
    if condition in _STYLES:
        return _STYLES[condition]
    of = Condition.parse(condition)
    hue = color(of.mapping) if of.normalizer else _HUES[crc32(condition.encode()) % len(_HUES)]
    number, marker = divmod(crc32((of.normalizer or condition).encode()), len(_MARKERS))
    return hue, _MARKERS[marker], _DASHES[number % len(_DASHES)] if of.normalizer else "-"


def points(condition: str) -> dict[str, Any]:
    """Return colour and marker of a condition, without a line."""
    return {**line_style(condition), "linestyle": "none"}


def display_name(name: str) -> str:
    """Format a name for figures: tail_weighted becomes Tail-weighted."""
    return name.replace("_", "-").capitalize()


def panel_title(axes: Axes, which: str, title: str) -> None:
    axes.set_title(f"({which}) {title}")


def panels(
    figure: Figure, frame: CsvFrame, columns: int | None = None, **shared: Any
) -> Iterator[tuple[Axes, CsvFrame]]:
    """Yield a new panel for every measure, headed with its name, and its rows.

    ``columns`` panels stand in a row, by default all of them; ``shared`` goes to ``Figure.subplots``.
    """
    parts = list(frame.by("measure"))
    columns = columns or len(parts)
    every = figure.subplots(-(-len(parts) // columns), columns, squeeze=False, **shared).flat
    for axes in every[len(parts) :]:  # The rest of the last row stays empty.
        axes.set_axis_off()
    for number, (axes, (name, own)) in enumerate(zip(every[: len(parts)], parts, strict=True)):
        panel_title(axes, letter(number), name)
        yield axes, own


def letter(number: int) -> str:
    """The name of a panel, counted from 0: a to z, then aa."""
    before, last = divmod(number, len(ascii_lowercase))
    return (letter(before - 1) if before else "") + ascii_lowercase[last]


def condition_handles(conditions: Sequence[str], notes: Mapping[str, str] = NO_NOTES) -> list[Line2D]:
    """The entries of a legend of conditions; ``notes`` follow the names of some."""
    return [
        Line2D([], [], label=display_name(name) + notes.get(name, ""), **line_style(name))
        for name in conditions
    ]


# Inches of a condition's name in a legend, with its line.
_NAME_WIDTH = 0.89


def legend(
    figure: Figure | SubFigure,
    conditions: Sequence[str],
    *extra: Line2D,
    note: str | None = None,
    notes: Mapping[str, str] = NO_NOTES,
) -> None:
    """Draw one legend of the conditions below all panels, under a line of text."""
    handles = [*condition_handles(conditions, notes), *extra]
    room = int(figure.bbox.width / figure.dpi / _NAME_WIDTH)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=max(1, min(len(handles), room)),
        columnspacing=1.2,
        title=note,
        title_fontsize=mpl.rcParams["legend.fontsize"],
    )


def legend_marker(label: str, fill: str = "none") -> Line2D:
    """A marker in the legend that stands for all conditions."""
    return Line2D([], [], color=GREY, marker="o", linestyle="none", markerfacecolor=fill or GREY, label=label)


def live_and_restarted() -> tuple[Line2D, ...]:
    """The legend of live (filled) and restarted (open) runs."""
    return legend_marker("live", ""), legend_marker("restarted")


def seed_count(frame: CsvFrame) -> str:
    """Format the number of seeds, by layer where rows name one, and the unit of scores."""
    seeds: dict[tuple[str, str | None], set[str]] = {}
    for row in frame.rows:
        seeds.setdefault((row["condition"], row.get("layer")), set()).add(row["seed"])
    number = span({len(names) for names in seeds.values()})
    unit = score_unit(frame)
    return f"n = {number} seed{'' if number == '1' else 's'}" + (f"; scores in {unit}" if unit else "")


def score_unit(frame: CsvFrame) -> str:
    """Return the unit of the rows that hold scores; empty where none says one."""
    units = (row.get("unit", "") for row in frame.rows)
    return next((unit for unit in units if unit not in ("", PERCENT, POINTS)), "")


def count_seeds(frame: CsvFrame) -> dict[str, int]:
    """The number of seeds of each condition where conditions differ in their seeds; otherwise empty."""
    seeds = {condition: own.names("seed") for condition, own in frame.by("condition")}
    if len({frozenset(names) for names in seeds.values()}) <= 1:
        return {}
    return {condition: len(names) for condition, names in seeds.items()}


def offsets(count: int, width: float = 0.6) -> list[float]:
    """Return ``count`` offsets around a shared position."""
    return [0.0] if count == 1 else [width * (i / (count - 1) - 0.5) for i in range(count)]


def zero_line(axes: Axes, vertical: bool = True) -> None:
    draw = axes.axvline if vertical else axes.axhline
    draw(0.0, color=GREY, lw=0.6, zorder=0)


def empty_panel(axes: Axes, reason: str) -> None:
    """Write the reason why a panel has no data."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, reason, ha="center", va="center", color=GREY, wrap=True, transform=axes.transAxes)


HOLLOW: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 0.8}


def mean_and_range(axes: Axes, frame: CsvFrame, column: str) -> None:
    """Draw the mean over seeds as a line and lowest to highest seed as a band, by condition."""
    for condition, own in frame.by("condition"):
        curves = np.array([same.numbers(column) for _, same in own.by("seed")])
        groups, hue = np.arange(1, curves.shape[1] + 1), color(condition)
        label, line = f"{display_name(condition)} (n = {len(curves)})", line_style(condition) | {"marker": ""}
        axes.step(groups, curves.mean(axis=0), where="post", **line, label=label)
        low, high = curves.min(axis=0), curves.max(axis=0)
        axes.fill_between(groups, low, high, color=hue, step="post", alpha=0.13, lw=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=(1, 2, 5, 10)))


def paired_points(axes: Axes, frame: CsvFrame) -> None:
    """Draw live (filled) and restarted (open) values, joined by seed, conditions next to each other."""
    for place, (condition, own) in enumerate(frame.by("condition")):
        seeds = [same for _, same in own.by("seed")]
        ends = [(place + side, layer) for side, layer in ((-0.17, "live"), (0.17, "restart"))]
        x = np.array([[at] * len(seeds) for at, _ in ends])
        y = np.array([[same.where(layer=layer).number() for same in seeds] for _, layer in ends])
        apart = np.full((1, len(seeds)), np.nan)
        joined = (np.vstack((values, apart)).T.ravel() for values in (x, y))
        axes.plot(*joined, color=color(condition), lw=0.7, alpha=0.7)
        axes.plot(x[0], y[0], **points(condition))
        axes.plot(x[1], y[1], **points(condition), **HOLLOW)
    _side_by_side(axes, frame)


def seed_points_by_condition(axes: Axes, frame: CsvFrame) -> None:
    """Draw every seed as an open marker and the mean as a bar, conditions next to each other."""
    for place, (condition, own) in enumerate(frame.by("condition")):
        seed_points(axes, own, place, condition)
    _side_by_side(axes, frame)


def _side_by_side(axes: Axes, frame: CsvFrame) -> None:
    axes.set_xticks([])
    axes.set_xlim(-0.5, max(len(frame.names("condition")), 1) - 0.5)


def seed_points(axes: Axes, frame: CsvFrame, place: float, condition: str, column: str = "value") -> None:
    """Draw the seeds of one condition as open markers, and their mean as a bar if none is missing."""
    values = frame.known(column).numbers(column)
    if len(values):
        x = place + np.array(offsets(len(values), 0.09))
        axes.plot(x, values, **points(condition), **HOLLOW)
        mean, ends = frame.mean(column), (place - 0.07, place + 0.07)
        axes.plot(ends, (mean, mean), color=color(condition), lw=2)
