"""The course of a cohort's runs, part by part, for one model or for several side by side."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from search_to_signal.analysis.figures import drawing
from search_to_signal.analysis.figures.plot import CsvFrame, Plot, Value, draw_from_csv, lines
from search_to_signal.analysis.metrics.search import program_uniqueness, valid_only_performance, valid_rate
from search_to_signal.analysis.results import RecordedRun
from search_to_signal.analysis.tables.catalogue import Evidence

PARTS = 10
COURSES = "courses"
COURSES_CAPTION = (
    "The course of the runs; several models stand side by side, each with scales of its own. Lines are means "
    "over seeds in ten equal parts of a run, bands reach from the lowest to the highest seed. Distinct "
    "programs are canonical programs per valid completion of a part. Higher is better, except for distinct "
    "programs, whose fall is a loss of variety."
)
_VALID, _SCORE, _DISTINCT, _BEST = (
    "valid (%)",
    "mean valid score",
    "distinct programs (%)",
    "best score so far",
)
_WIDTH, _HEIGHT = 2.35, 1.5
NOTHING_PLANNED: Mapping[str, int] = {}


def course_table(evidence: Evidence) -> str:
    """Long form: model, condition, seed, last group of the part, measure, value or nothing."""
    rows: list[tuple[Value, ...]] = [
        (Path(run.facts.model).name, run.condition, run.seed, *part, evidence.unit)
        for run in evidence.results.cohort
        for part in _parts(run)
    ]
    return lines(("model", "condition", "seed", "group", "measure", "value", "unit"), rows)


def _parts(run: RecordedRun) -> Iterator[tuple[Value, ...]]:
    for part in np.array_split(np.arange(len(run.groups)), min(PARTS, len(run.groups))):
        start, stop = int(part[0]), int(part[-1]) + 1
        batch = run.batch.at(slice(start, stop))
        yield stop, _VALID, _percent(valid_rate(batch))
        yield stop, _SCORE, valid_only_performance(batch)
        yield stop, _DISTINCT, _percent(program_uniqueness(run.groups[start:stop]))
        yield stop, _BEST, float(run.best[stop - 1])


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _draw_course(figure: Figure, frame: CsvFrame) -> None:
    for axes, own in drawing.panels(figure, frame, "measure", 2):
        _draw_measure(axes, own)
        axes.set_xlabel("evaluated groups")
    drawing.legend(figure, frame.names("condition"), note=drawing.seed_count(frame))


def _draw_measure(axes: Axes, frame: CsvFrame) -> None:
    """Mean over the seeds that have a value, and the range of these, by condition."""
    for condition, own in frame.by("condition"):
        known = [(int(group), part.known().numbers()) for group, part in own.by("group")]
        present = [(group, values) for group, values in known if len(values)]
        if not present:
            continue
        groups = [group for group, _ in present]
        hue, style = drawing.color(condition), drawing.line_style(condition) | {"markersize": 2.2}
        axes.plot(groups, [values.mean() for _, values in present], **style)
        low, high = ([edge(values) for _, values in present] for edge in (np.min, np.max))
        axes.fill_between(groups, low, high, color=hue, alpha=0.13, lw=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=(1, 2, 5, 10)))


COURSE = Plot(
    "course",
    "The course of the runs",
    """Each panel is a measure in ten equal parts of a run: lines are means over seeds, bands reach from the
    lowest to the highest seed. Distinct programs are canonical programs per valid completion of the part.
    Higher is better, except for distinct programs, whose fall is a loss of variety.""",
    course_table,
    _draw_course,
    (7.0, 4.2),
    ("core_results", "stages"),
)


def draw_courses(texts: Mapping[str, str], out: Path, planned: Mapping[str, int] = NOTHING_PLANNED) -> Path:
    """Draw the courses of several models side by side; ``texts`` are their CSVs by name, in order.

    ``planned`` are planned seeds by name: a cohort that lacks some says how many of how many it has.
    Writes courses.csv, .png and .pdf below ``out``; returns the path of the PNG.
    """
    frames = {name: CsvFrame.read(text) for name, text in texts.items()}
    rows = [
        (name, *(row[key] for key in ("model", "condition", "seed", "group", "measure", "value", "unit")))
        for name, frame in frames.items()
        for row in frame.rows
    ]
    columns = ("cohort", "model", "condition", "seed", "group", "measure", "value", "unit")
    if len(frames) == 1:
        return draw_from_csv(COURSES, lines(columns, rows), COURSE.draw, COURSE.size, out)
    size = (_WIDTH * len(frames), 4 * _HEIGHT + 0.6)
    return draw_from_csv(COURSES, lines(columns, rows), partial(_draw_courses, planned), size, out)


def _draw_courses(planned: Mapping[str, int], figure: Figure, frame: CsvFrame) -> None:
    cohorts, measures = list(frame.by("cohort")), frame.names("measure")
    grid = figure.subplots(len(measures), len(cohorts), squeeze=False, sharex="col")
    for column, (name, own) in enumerate(cohorts):
        for row, measure in enumerate(measures):
            _draw_measure(grid[row, column], own.where(measure=measure))
        first = own.rows[0]
        seeds = len(own.names("seed"))
        grid[0, column].set_title(f"{first['model']}\n{_count(seeds, planned.get(name, seeds))}", fontsize=7)
        grid[-1, column].set_xlabel("evaluated groups")
    for row, measure in enumerate(measures):
        grid[row, 0].set_ylabel(measure)
    drawing.legend(figure, frame.names("condition"), note=f"scores in {frame.rows[0]['unit']}")


def _count(seeds: int, planned: int) -> str:
    return f"n = {seeds}" if seeds >= planned else f"PARTIAL: n = {seeds} of {planned}"
