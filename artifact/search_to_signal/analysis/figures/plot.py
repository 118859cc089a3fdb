"""A figure: its name, what it says, the CSV that it is drawn from, and how. Equal records, equal bytes."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from search_to_signal.analysis.figures.frame import Frame
from search_to_signal.analysis.figures.style import SETTINGS
from search_to_signal.analysis.results import NoTableError, Results
from search_to_signal.analysis.tables.catalogue import Evidence, horizon_note

_PNG_DPI = 200


@dataclass(frozen=True)
class Plot:
    """``table`` gives the text of the CSV, or raises NoTableError; ``draw`` sees that text and no records.

    ``size`` is (width, height) in inches; ``tables`` name the tables that hold the same numbers; ``remark``
    gives what the caption says of the CSV's own numbers; ``layers`` are those whose horizon it ends with.
    """

    name: str
    title: str
    caption: str
    table: Callable[[Evidence], str]
    draw: Callable[[Figure, Frame], None]
    size: tuple[float, float] = (7.0, 2.6)
    tables: tuple[str, ...] = ()
    remark: Callable[[Frame], str] = lambda frame: ""
    layers: tuple[str, ...] = ("cohort",)

    def remarked(self, path: Path) -> "Plot":
        """The figure of the CSV beside ``path``: its caption ends with the remark."""
        frame = Frame.read(path.with_suffix(".csv").read_text(encoding="utf-8"))
        return replace(self, caption=" ".join(f"{self.caption} {self.remark(frame)}".split()))

    def captioned(self, results: Results) -> "Plot":
        """The figure of these results: its caption ends with the horizons of the layers that have run."""
        notes: dict[str, None] = {}
        for layer in self.layers:
            with suppress(NoTableError):
                notes[horizon_note(results, layer)] = None
        return replace(self, caption=" ".join([*self.caption.split(), *notes]))


def write_plot(plot: Plot, evidence: Evidence, directory: Path) -> Path:
    """Write NAME.csv and draw NAME.pdf and NAME.png from it; returns the path of the PNG.

    Figures of smoke runs are named smoke_NAME and say so across their face. Raises NoTableError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{'smoke_' if evidence.smoke else ''}{plot.name}.csv"
    path.write_text(plot.table(evidence), encoding="utf-8")
    return redraw(plot, path, evidence.smoke)


def redraw(plot: Plot, path: Path, smoke: bool = False) -> Path:
    """Draw a figure from its CSV into the same directory; returns the path of the PNG."""
    with mpl.rc_context(dict(SETTINGS)):
        figure = Figure(figsize=plot.size, layout="constrained")
        plot.draw(figure, Frame.read(path.read_text(encoding="utf-8")))
        if smoke:
            _mark(figure)
        figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
        figure.set_layout_engine("none")  # panels stay where the first drawing put them
        png = path.with_suffix(".png")
        figure.savefig(png, dpi=_PNG_DPI, metadata={"Software": None})
    return png


def _mark(figure: Figure) -> None:
    """Nobody shall take a figure of a smoke run for a result, wherever it is copied to."""
    figure.text(
        0.5,
        0.5,
        "SMOKE RUN – no evidence",
        ha="center",
        va="center",
        rotation=18,
        fontsize=3.2 * figure.get_figwidth(),
        color="#D55E00",
        alpha=0.28,
        in_layout=False,
    )
