"""How figures look: Okabe and Ito's colours, with a marker and a line style each for readers in grey."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from search_to_signal.analysis.figures.frame import Frame

SETTINGS: Mapping[str, Any] = {
    "svg.hashsalt": "search-to-signal",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "lines.markersize": 4,
    "lines.linewidth": 1.3,
    "figure.constrained_layout.h_pad": 0.05,
    "figure.constrained_layout.w_pad": 0.05,
}

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, RED, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#777777"

# Colour, marker, line style.
_STYLES: Mapping[str, tuple[str, str, str]] = {
    "frozen": (BLACK, "s", "--"),
    "native": (BLUE, "o", "-"),
    "factorized": (RED, "^", "-"),
    "tail_weighted": (GREEN, "D", "-."),
    "search_exposure": (PURPLE, "v", ":"),
}
_OTHER = (ORANGE, "P", "-")


def color(condition: str) -> str:
    """The colour of a condition; all that are not ours share one."""
    return _STYLES.get(condition, _OTHER)[0]


def marker(condition: str) -> str:
    """The marker of a condition."""
    return _STYLES.get(condition, _OTHER)[1]


def dashes(condition: str) -> str:
    """The line style of a condition."""
    return _STYLES.get(condition, _OTHER)[2]


def shown(name: str) -> str:
    """A name as figures print it: tail_weighted is Tail-weighted."""
    return name.replace("_", "-").capitalize()


def letter(axes: Axes, which: str, title: str) -> None:
    """Head a panel."""
    axes.set_title(f"({which}) {title}")


def key(figure: Figure | SubFigure, conditions: Sequence[str], extra: Sequence[Line2D] = ()) -> None:
    """One legend of the conditions below all panels."""
    handles = [
        Line2D([], [], color=color(name), marker=marker(name), linestyle=dashes(name), label=shown(name))
        for name in conditions
    ]
    figure.legend(
        handles=[*handles, *extra],
        loc="outside lower center",
        ncols=len(handles) + len(extra),
        columnspacing=1.2,
    )


def sign(label: str, fill: str = "none", shape: str = "o") -> Line2D:
    """A marker in the legend that stands for all conditions."""
    return Line2D(
        [], [], color=GREY, marker=shape, linestyle="none", markerfacecolor=fill or GREY, label=label
    )


def scores(frame: Frame) -> Line2D:
    """Words for the legend: what scores measure, where the rows say it, and how many seeds there are."""
    unit = frame.rows[0].get("unit")
    number = len(frame.names("seed"))
    label = f"n = {number} seed{'' if number == 1 else 's'}" + (f"; scores in {unit}" if unit else "")
    return Line2D([], [], linestyle="none", label=label)


def spread_out(count: int, width: float = 0.6) -> list[float]:
    """Offsets around a place for so many things that share it."""
    return [0.0] if count == 1 else [width * (i / (count - 1) - 0.5) for i in range(count)]


def zero_line(axes: Axes, vertical: bool = True) -> None:
    """A thin line where nothing differs."""
    draw = axes.axvline if vertical else axes.axhline
    draw(0.0, color=GREY, lw=0.6, zorder=0)


def empty(axes: Axes, reason: str) -> None:
    """A panel whose layer has not run says so."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, reason, ha="center", va="center", color=GREY, wrap=True, transform=axes.transAxes)
