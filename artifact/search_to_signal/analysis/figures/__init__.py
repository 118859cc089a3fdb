"""The figures of the paper from records, each drawn from a CSV beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from search_to_signal.analysis.figures.atlas import ATLAS
from search_to_signal.analysis.figures.cohort import (
    BEST_SO_FAR,
    OUTCOMES_PLOT,
    PAIRED_EFFECTS,
    STAGE_DYNAMICS,
)
from search_to_signal.analysis.figures.layers import BREADTH, HELDOUT, RESTART, TOURS_PLOT
from search_to_signal.analysis.figures.plot import Plot, write_plot
from search_to_signal.analysis.figures.signal import SIGNAL
from search_to_signal.analysis.results import NoTableError
from search_to_signal.analysis.tables.catalogue import Evidence
from search_to_signal.records.tours import TOURS

PLOTS: Sequence[Plot] = (
    BEST_SO_FAR,
    SIGNAL,
    OUTCOMES_PLOT,
    PAIRED_EFFECTS,
    STAGE_DYNAMICS,
    ATLAS,
    RESTART,
    BREADTH,
    HELDOUT,
)


@dataclass(frozen=True)
class Drawn:
    """The figures of a results directory, captions complete, with the paths of their PNGs.

    ``absent`` says why some were not drawn.
    """

    figures: tuple[tuple[Plot, Path], ...]
    absent: Mapping[str, str]


def draw_all(evidence: Evidence, directory: Path) -> Drawn:
    """Draw every figure whose layer has run, tours first; damaged layers raise as tables do."""
    figures, absent = [], {}
    toured = (evidence.results.directory / TOURS).is_file()
    for plot in (TOURS_PLOT, *PLOTS) if toured else PLOTS:
        try:
            path = write_plot(plot, evidence, directory)
            figures.append((plot.remarked(path).captioned(evidence.results), path))
        except NoTableError as reason:
            absent[plot.name] = str(reason)
    return Drawn(tuple(figures), absent)
