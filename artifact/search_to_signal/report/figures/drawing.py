"""Shared drawing functions, in the colours of Okabe and Ito, with markers and dashes for grey print."""

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_lowercase
from typing import Any
from zlib import crc32

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from search_to_signal.base.progress import span
from search_to_signal.records.conditions import FROZEN, Condition
from search_to_signal.report.figures.plot import CsvFrame
from search_to_signal.report.tables.cells import PERCENT, POINTS

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
    figure: Figure, frame: CsvFrame, column: str, columns: int | None = None, **shared: Any
) -> Iterator[tuple[Axes, CsvFrame]]:
    """Yield a new panel for every name in a column, headed with it, and the name's rows.

    ``columns`` panels stand in a row, by default all of them; ``shared`` goes to ``Figure.subplots``.
    """
    parts = list(frame.by(column))
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
