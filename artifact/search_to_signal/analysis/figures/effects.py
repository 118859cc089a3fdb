"""Paired effects and stage dynamics of the live cohort (paper, figs. paired-effects and stage-dynamics)."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from search_to_signal.analysis.figures.frame import Frame, lines, value_of
from search_to_signal.analysis.figures.plot import Plot
from search_to_signal.analysis.figures.style import (
    GREY,
    color,
    dashes,
    key,
    letter,
    marker,
    scores,
    shown,
    spread_out,
    zero_line,
)
from search_to_signal.analysis.tables.catalogue import Evidence
from search_to_signal.analysis.tables.measures import ALL, STREAM, differences
from search_to_signal.analysis.tables.paired import comparisons, few_seeds
from search_to_signal.analysis.tables.proposals import stage_parts

_LETTERS = "abcdefghij"


def paired_table(evidence: Evidence) -> str:
    """Same-seed differences of every measure: comparison, first and second condition, seed, measure."""
    rows = [
        (c.name, c.first, c.second, one.seed, measure.change, value_of(cell), evidence.unit)
        for c in comparisons(evidence.results)
        for one, other in c.pairs
        for measure, cell in zip(ALL, differences(one, other, ALL), strict=True)
    ]
    return lines(("comparison", "first", "second", "seed", "measure", "value", "unit"), rows)


def _draw_paired(figure: Figure, frame: Frame) -> None:
    grid = figure.subplots(3, 3, sharey=True)
    for axes, which, measure in zip(grid.flat, _LETTERS, frame.names("measure"), strict=False):
        _draw_differences(axes, frame.where(measure=measure))
        letter(axes, which, measure)
    names = frame.names("comparison")
    seeds = [len(frame.where(comparison=name).names("seed")) for name in names]
    labels = [_comparison(frame.where(comparison=c), n) for c, n in zip(names, seeds, strict=True)]
    grid[0, 0].set_yticks(range(len(names)), labels)
    grid[0, 0].invert_yaxis()
    note = f"first minus second of the same seed; scores in {frame.rows[0]['unit']}, higher is better"
    figure.supxlabel(note, fontsize=7.5)


def _comparison(frame: Frame, n: int) -> str:
    row = frame.rows[0]
    return f"{shown(row['first'])} − {shown(row['second'])} (n = {n})"


def _draw_differences(axes: Axes, frame: Frame) -> None:
    zero_line(axes)
    for place, name in enumerate(frame.names("comparison")):
        own = frame.where(comparison=name)
        known, hue = own.known().numbers(), color(own.rows[0]["first"])
        if not len(known):
            continue
        axes.plot((known.min(), known.max()), (place, place), color=hue, lw=1.6, alpha=0.45)
        axes.plot(
            known, [place] * len(known), "o", color=hue, markersize=2.6, markerfacecolor="white", mew=0.8
        )
        axes.plot(own.mean(), place, "D", color=hue, markersize=4.2)
    axes.locator_params(axis="x", nbins=4)


def _remark(frame: Frame) -> str:
    return few_seeds(len(frame.where(comparison=name).names("seed")) for name in frame.names("comparison"))


def stages_table(evidence: Evidence) -> str:
    """The measures of the proposal stream by run and stage."""
    rows = [
        (run.condition, run.seed, stage, measure.heading, value_of(cell), evidence.unit)
        for run in evidence.results.cohort
        for stage, cells in stage_parts(run).items()
        for measure, cell in zip(STREAM, cells[: len(STREAM)], strict=True)
    ]
    return lines(("condition", "seed", "stage", "measure", "value", "unit"), rows)


def _draw_stages(figure: Figure, frame: Frame) -> None:
    grid = figure.subplots(1, len(STREAM))
    for axes, which, measure in zip(grid, _LETTERS, frame.names("measure"), strict=False):
        _draw_stage(axes, frame.where(measure=measure))
        letter(axes, which, measure)
    key(figure, frame.names("condition"), (scores(frame),))


def _draw_stage(axes: Axes, frame: Frame) -> None:
    conditions, stages = frame.names("condition"), frame.names("stage")
    for offset, condition in zip(spread_out(len(conditions), 0.36), conditions, strict=True):
        own = [frame.where(condition=condition, stage=stage) for stage in stages]
        places = np.arange(len(stages)) + offset
        means = [part.mean() for part in own]
        axes.plot(places, means, dashes(condition), color=color(condition), marker=marker(condition))
        for place, part in zip(places, own, strict=True):
            known = part.known().numbers()
            if len(known):
                axes.plot((place, place), (known.min(), known.max()), color=color(condition), lw=0.8)
    axes.set_xticks(range(len(stages)), stages)
    axes.set_xlim(-0.4, len(stages) - 0.6)
    axes.grid(axis="y", color=GREY, alpha=0.25, lw=0.4)


PAIRED_EFFECTS = Plot(
    "paired_effects",
    "Paired effects",
    """Differences between runs of the same seed in the live cohort. Diamonds are means, bars the range of
    the seeds, open circles the seeds. Right of zero favours the first condition. Against Frozen, a
    difference combines online updating with the construction; against Native it is the construction
    alone.""",
    paired_table,
    _draw_paired,
    (7.0, 5.2),
    ("paired", "paired_signs"),
    remark=_remark,
)
STAGE_DYNAMICS = Plot(
    "stage_dynamics",
    "Stage dynamics",
    """The proposal stream early, middle and late: the first 20 %, the next 30 % and the last 50 % of the
    groups. Markers are means over seeds, bars their range. Each condition meets contexts of its own
    making: this is no evaluation on fixed prompts.""",
    stages_table,
    _draw_stages,
    (7.0, 2.4),
    ("stages",),
)
