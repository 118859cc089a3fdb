"""The course of a cohort's runs, part by part, for one model or for several side by side."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import offset_copy

from search_to_signal.base.progress import span
from search_to_signal.report.figures import drawing
from search_to_signal.report.figures.plot import CsvFrame, Plot, Value, draw_from_csv, lines
from search_to_signal.report.metrics.search import program_uniqueness, valid_only_performance, valid_rate
from search_to_signal.report.results import Runs
from search_to_signal.report.tables.cells import unit_of

PARTS = 10
COURSES = "courses"
_COURSES_CAPTION = (
    "The course of the runs. Columns are models, each with its own scales. Lines are means over seeds in ten "
    "equal parts of a run, bands reach from the lowest to the highest seed. Distinct "
    "programs are canonical programs per valid completion of a part. Higher is better; fewer distinct "
    "programs are a loss of variety."
)
UNPAIRED = (
    "Planned runs are missing: every condition shows all of its finished runs, with n after its name. So "
    "conditions may have different seeds, and lines are not compared within seeds."
)
_WIDTH, _HEIGHT = 2.35, 1.5
# A list of five conditions below each model, taller than one line of them.
_LIST = 0.55
_LETTERS_PER_INCH = 12
_NARROW = 2.0


class Planned(NamedTuple):
    """How many seeds of a cohort were planned, and what it is called where it lacks some of them."""

    seeds: int
    lacking: str


NOTHING_PLANNED: Mapping[str, Planned] = {}


def courses_of(runs: Runs) -> str:
    """Long form: model, condition, seed, last group of the part, measure, value or nothing."""
    rows: list[tuple[Value, ...]] = []
    for run in runs:
        for part in np.array_split(np.arange(len(run.groups)), min(PARTS, len(run.groups))):
            start, stop = int(part[0]), int(part[-1]) + 1
            batch = run.batch.at(slice(start, stop))
            valid, distinct = valid_rate(batch), program_uniqueness(run.groups[start:stop])
            values = {
                "valid (%)": None if valid is None else 100.0 * valid,
                "mean valid score": valid_only_performance(batch),
                "distinct programs (%)": None if distinct is None else 100.0 * distinct,
                "best score so far": float(run.best[stop - 1]),
            }
            place = Path(run.facts.model).name, run.condition, run.seed, stop
            rows += ((*place, what, value, unit_of(what, run.unit)) for what, value in values.items())
    return lines(("model", "condition", "seed", "group", "measure", "value", "unit"), rows)


def _draw_course(figure: Figure, frame: CsvFrame) -> None:
    for axes, own in drawing.panels(figure, frame, "measure", 2):
        _draw_measure(axes, own)
        axes.set_xlabel("evaluated groups")
    counts, note = drawing.count_seeds(frame), drawing.seed_count(frame)
    drawing.legend(
        figure,
        frame.names("condition"),
        note=f"not all planned runs are recorded: {note}" if counts else note,
        notes={name: f"\nn = {n}" for name, n in counts.items()},
    )


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
    Higher is better; fewer distinct programs are a loss of variety.""",
    lambda evidence: courses_of(evidence.results.finished),
    _draw_course,
    (7.0, 4.2),
    ("core_results", "stages"),
    remark=lambda frame: UNPAIRED if drawing.count_seeds(frame) else "",
)


def draw_courses(
    texts: Mapping[str, str], out: Path, planned: Mapping[str, Planned] = NOTHING_PLANNED
) -> Path:
    """Draw the courses of several models side by side; ``texts`` are their CSVs by name, in order.

    ``planned`` are by name: a cohort that lacks seeds says how many of how many it has.
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
    below = _LIST if any(map(drawing.count_seeds, frames.values())) else 0.0
    size = (_WIDTH * len(frames), 4 * _HEIGHT + 0.6 + below)
    return draw_from_csv(COURSES, lines(columns, rows), partial(draw_side_by_side, planned), size, out)


def describe_courses(texts: Mapping[str, str]) -> str:
    """Return the caption of the courses of several models, by what their CSVs hold."""
    differ = any(drawing.count_seeds(CsvFrame.read(text)) for text in texts.values())
    return f"{_COURSES_CAPTION} {UNPAIRED}" if differ else _COURSES_CAPTION


def draw_side_by_side(planned: Mapping[str, Planned], figure: Figure, frame: CsvFrame) -> None:
    """Draw a row of panels per measure and a column per cohort; ``planned`` as in ``draw_courses``."""
    cohorts, measures = list(frame.by("cohort")), frame.names("measure")
    width = figure.get_figwidth() / len(cohorts)
    grid = figure.subplots(len(measures), len(cohorts), squeeze=False, sharex="col")
    for column, (name, own) in enumerate(cohorts):
        for row, measure in enumerate(measures):
            _draw_measure(grid[row, column], own.where(measure=measure))
        model = fill(own.rows[0]["model"], int(_LETTERS_PER_INCH * width))
        grid[0, column].set_title(f"{model}\n{_count(own, planned.get(name))}", fontsize=7)
        if width < _NARROW:
            grid[-1, column].locator_params(axis="x", nbins=3)
        grid[-1, column].set_xlabel("evaluated groups")
    for row, measure in enumerate(measures):
        grid[row, 0].set_ylabel(measure)
    note = f"scores in {drawing.score_unit(frame)}"
    if any(drawing.count_seeds(own) for _, own in cohorts):
        # A legend below each cohort's last panel, with the seeds of each condition.
        for (_, own), axes in zip(cohorts, grid[-1], strict=True):
            notes = {name: f" (n = {len(same.names('seed'))})" for name, same in own.by("condition")}
            axes.legend(
                handles=drawing.condition_handles(own.names("condition"), notes),
                loc="upper left",
                bbox_to_anchor=(0.0, 0.0),
                bbox_transform=offset_copy(axes.transAxes, figure, x=-18, y=-30, units="points"),
                borderpad=0.0,
                handlelength=1.8,
                fontsize=6.5,
            )
        figure.supxlabel(note, fontsize=7)
    else:
        drawing.legend(figure, frame.names("condition"), note=note)


def _count(frame: CsvFrame, planned: Planned | None) -> str:
    """How many seeds a cohort has, of how many planned ones where it lacks some."""
    counts = {*drawing.count_seeds(frame).values()} or {len(frame.names("seed"))}
    if planned is None or min(counts) >= planned.seeds:
        return f"n = {span(counts)}"
    return f"{planned.lacking}: n = {span(counts)} of {planned.seeds}"
