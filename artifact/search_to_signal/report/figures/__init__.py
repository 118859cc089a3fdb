"""The figures of the paper from records, each drawn from its own CSV file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# First: it sees to it that matplotlib reads no settings that lie around.
import search_to_signal.report.figures.style  # noqa: F401  # isort: split
from search_to_signal.base.processes import mapped
from search_to_signal.records.heldout import TOURS
from search_to_signal.report.figures import cohort, layers
from search_to_signal.report.figures.plot import Plot, redraw, write_data
from search_to_signal.report.results import NoTableError
from search_to_signal.report.tables.catalogue import Evidence

PLOTS: Sequence[Plot] = (
    cohort.BEST_SO_FAR,
    cohort.COURSE,
    layers.SIGNAL,
    cohort.OUTCOMES_PLOT,
    cohort.PAIRED_EFFECTS,
    cohort.STAGE_DYNAMICS,
    cohort.ATLAS,
    layers.RESTART,
    layers.BREADTH,
    layers.HELDOUT,
)


@dataclass(frozen=True)
class DrawnFigures:
    """The figures of a results directory, captions complete, with the paths of their PNGs.

    ``absent`` has the reasons why some were not drawn.
    """

    figures: tuple[tuple[Plot, Path], ...]
    absent: Mapping[str, str]


def draw_all(evidence: Evidence, directory: Path) -> DrawnFigures:
    """Draw every figure whose layer has run, tours first; damaged layers raise as tables do."""
    written, absent = [], {}
    toured = (evidence.results.directory / TOURS).is_file()
    for plot in (layers.TOURS_PLOT, *PLOTS) if toured else PLOTS:
        try:
            written.append((plot, write_data(plot, evidence, directory)))
        except NoTableError as reason:
            absent[plot.name] = str(reason)
    tasks = [(plot.name, path, evidence.results.smoke) for plot, path in written]
    figures = [
        (plot.remarked(path).captioned(evidence.results), png)
        for (plot, path), png in zip(written, mapped(_draw, tasks), strict=True)
    ]
    return DrawnFigures(tuple(figures), absent)


def _draw(task: tuple[str, Path, bool]) -> Path:
    name, path, smoke = task
    return redraw(next(plot for plot in (layers.TOURS_PLOT, *PLOTS) if plot.name == name), path, smoke)
