"""Figures from records, each beside the CSV that it was drawn from; equal data give equal bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables import to_csv

# Okabe and Ito's colours, told apart by most colour-blind readers; line styles tell them apart in grey.
STYLE: Mapping[str, tuple[str, str]] = {
    "frozen": ("#000000", "--"),
    "native": ("#0072B2", "-"),
    "factorized": ("#D55E00", "-"),
    "tail_weighted": ("#009E73", "-."),
    "search_exposure": ("#CC79A7", ":"),
}
_OTHER = ("#E69F00", "-")
_SETTINGS = {"svg.hashsalt": "search-to-signal", "pdf.fonttype": 42, "font.size": 8, "axes.linewidth": 0.6}


def best_so_far_rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    """Long form: condition, seed, group, best score so far."""
    rows = [["condition", "seed", "group", "best_so_far"]]
    for run in runs:
        rows += [[run.condition, str(run.seed), str(t + 1), repr(float(b))] for t, b in enumerate(run.best)]
    return rows


def _draw_condition(axes: Axes, condition: str, runs: Sequence[RecordedRun]) -> None:
    colour, line = STYLE.get(condition, _OTHER)
    curves = np.array([run.best for run in runs])
    groups = np.arange(1, curves.shape[1] + 1)
    axes.step(
        groups,
        curves.mean(axis=0),
        line,
        where="post",
        color=colour,
        label=f"{condition} (n = {len(runs)})",
        lw=1.4,
    )
    axes.fill_between(
        groups, curves.min(axis=0), curves.max(axis=0), color=colour, step="post", alpha=0.12, lw=0
    )


def best_so_far_figure(runs: Sequence[RecordedRun], directory: Path, unit: str) -> None:
    """Mean best score so far over seeds, bands from the lowest to the highest seed; higher is better."""
    (directory / "best_so_far.csv").write_text(to_csv(best_so_far_rows(runs)))
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(3.4, 2.5), layout="constrained")
        axes = figure.add_subplot()
        for condition in dict.fromkeys(run.condition for run in runs):
            _draw_condition(axes, condition, [run for run in runs if run.condition == condition])
        axes.set_xlabel("evaluated groups")
        axes.set_ylabel(f"best score so far ({unit})")
        axes.legend(frameon=False, loc="lower right")
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(directory / "best_so_far.pdf", metadata={"CreationDate": None})
        figure.savefig(directory / "best_so_far.png", dpi=200, metadata={"Software": None})
