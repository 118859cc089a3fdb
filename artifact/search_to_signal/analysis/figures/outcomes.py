"""The plan's primary questions in one figure: every seed, the mean and its interval, zero as a line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from search_to_signal.analysis.figures.drawing import BLUE, GREY, ORANGE, RED, zero_line
from search_to_signal.analysis.figures.plot import CsvFrame, Value, draw_from_csv, lines
from search_to_signal.analysis.plan.formatting import metric_heading
from search_to_signal.analysis.plan.verdicts import OutcomeVerdict, QuestionOutcome
from search_to_signal.analysis.tables.measures import MEASURES

NAME = "outcomes"
CAPTION = (
    "Primary questions of the plan. Small circles are seeds, diamonds their means, bars the interval for "
    "each alone, thin bars the wider one that decides. Blue: the wider one lies above zero; red: below; "
    "grey: undecided; orange: not all seeds are recorded, so no verdict. Higher is better."
)
_COLORS = {
    OutcomeVerdict.ABOVE.value: BLUE,
    OutcomeVerdict.BELOW.value: RED,
    OutcomeVerdict.PARTIAL.value: ORANGE,
    OutcomeVerdict.CLOSED.value: ORANGE,
}
_COLUMNS = (
    "metric",
    "comparison",
    "seed",
    "value",
    "low",
    "high",
    "strict_low",
    "strict_high",
    "verdict",
    "n",
)
# Narrow, with names above their rows: it stays readable on a telephone.
_WIDTH, _PER_LINE, _PER_PANEL = 4.4, 0.3, 0.72
# White behind them: the line at zero does not strike names through.
_NAMES: Mapping[str, Any] = {
    "fontsize": 6.5,
    "va": "bottom",
    "in_layout": False,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6},
}


def outcome_lines(outcomes: Sequence[QuestionOutcome], unit: str) -> str:
    """The text of the figure's CSV: a row per seed; scores in ``unit``, shares in points.

    Where the comparisons are of several profiles, each is called by its profile as well.
    """
    rows: list[tuple[Value, ...]] = []
    several = len({outcome.profile for outcome in outcomes}) > 1
    for outcome in outcomes:
        measure = MEASURES[outcome.question.metric]
        bars = [*(outcome.interval or (None, None)), *(outcome.corrected or (None, None))]
        scaled = [None if end is None else measure.factor * end for end in bars]
        title = metric_heading(outcome) if measure.factor != 1.0 else f"{metric_heading(outcome)} ({unit})"
        profile = f"{outcome.profile}: " if several and outcome.profile else ""
        name = f"{profile}{outcome.name} (n = {len(outcome.values)})"
        for seed, value in outcome.values.items():
            numbers = (measure.factor * value, *scaled)
            rows.append((title, name, seed, *numbers, outcome.verdict.value, len(outcome.values)))
    return lines(_COLUMNS, rows)


def draw_outcomes(text: str, out: Path) -> Path:
    """Write NAME.csv and draw NAME.png and NAME.pdf from it; returns the PNG's path."""
    frame = CsvFrame.read(text)
    rows = [len(own.names("comparison")) for _, own in frame.by("metric")]
    height = _PER_LINE * sum(rows) + _PER_PANEL * len(rows)
    return draw_from_csv(NAME, text, _draw_panels, (_WIDTH, height), out)


def _draw_panels(figure: Figure, frame: CsvFrame) -> None:
    parts = list(frame.by("metric"))
    ratios = [1 + len(own.names("comparison")) for _, own in parts]
    grid = figure.subplots(len(parts), 1, squeeze=False, height_ratios=ratios)
    for axes, (name, own) in zip(grid[:, 0], parts, strict=True):
        _draw(axes, own, name)


def _draw(axes: Axes, frame: CsvFrame, title: str) -> None:
    zero_line(axes)
    names = frame.names("comparison")
    for place, name in enumerate(names):
        own = frame.where(comparison=name)
        row, hue = own.rows[0], _COLORS.get(own.rows[0]["verdict"], GREY)
        axes.plot(
            own.numbers(), [place] * len(own.rows), "o", color=hue, ms=2.4, mfc="none", mew=0.5, alpha=0.7
        )
        for low, high, width in (("strict_low", "strict_high", 0.8), ("low", "high", 2.2)):
            if row[low]:
                axes.plot((float(row[low]), float(row[high])), (place, place), color=hue, lw=width)
        axes.plot(own.mean(), place, "D", color=hue, ms=4.5, mec="white", mew=0.6)
        axes.text(0.0, place - 0.24, name, **_NAMES, transform=axes.get_yaxis_transform())
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(names) - 0.5, -0.85)
    axes.set_title(title, fontsize=8)
    axes.locator_params(axis="x", nbins=5)
