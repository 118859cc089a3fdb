"""Curves, outcomes, paired effects, stage dynamics and the diagnostic atlas of the live cohort.

Paper, figs. downstream-evidence, paired-effects, stage-dynamics and diagnostic-atlas.
"""

from collections.abc import Mapping
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import offset_copy

from search_to_signal.base.progress import span
from search_to_signal.layers.restart.tables import restart_comparisons, restarts_and_live
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.groups import OUTCOMES
from search_to_signal.records.schema import Outcome
from search_to_signal.report.figures import plot
from search_to_signal.report.figures.plot import CsvFrame, Plot, Value, draw_from_csv, lines
from search_to_signal.report.metrics.search import program_uniqueness, valid_only_performance, valid_rate
from search_to_signal.report.results import NoTableError, Results, Runs
from search_to_signal.report.tables import core, measures
from search_to_signal.report.tables.catalogue import Evidence
from search_to_signal.report.tables.cells import PERCENT, POINTS, unit_of

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
    for axes, own in plot.panels(figure, frame, 2):
        _draw_measure(axes, own)
        axes.set_xlabel("evaluated groups")
    counts, note = plot.count_seeds(frame), plot.seed_count(frame)
    plot.legend(
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
        hue, style = plot.color(condition), plot.line_style(condition) | {"markersize": 2.2}
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
    remark=lambda frame: UNPAIRED if plot.count_seeds(frame) else "",
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
    below = _LIST if any(map(plot.count_seeds, frames.values())) else 0.0
    size = (_WIDTH * len(frames), 4 * _HEIGHT + 0.6 + below)
    return draw_from_csv(COURSES, lines(columns, rows), partial(draw_side_by_side, planned), size, out)


def describe_courses(texts: Mapping[str, str]) -> str:
    """Return the caption of the courses of several models, by what their CSVs hold."""
    differ = any(plot.count_seeds(CsvFrame.read(text)) for text in texts.values())
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
    note = f"scores in {plot.score_unit(frame)}"
    if any(plot.count_seeds(own) for _, own in cohorts):
        # A legend below each cohort's last panel, with the seeds of each condition.
        for (_, own), axes in zip(cohorts, grid[-1], strict=True):
            notes = {name: f" (n = {len(same.names('seed'))})" for name, same in own.by("condition")}
            axes.legend(
                handles=plot.condition_handles(own.names("condition"), notes),
                loc="upper left",
                bbox_to_anchor=(0.0, 0.0),
                bbox_transform=offset_copy(axes.transAxes, figure, x=-18, y=-30, units="points"),
                borderpad=0.0,
                handlelength=1.8,
                fontsize=6.5,
            )
        figure.supxlabel(note, fontsize=7)
    else:
        plot.legend(figure, frame.names("condition"), note=note)


def _count(frame: CsvFrame, planned: Planned | None) -> str:
    """How many seeds a cohort has, of how many planned ones where it lacks some."""
    counts = {*plot.count_seeds(frame).values()} or {len(frame.names("seed"))}
    if planned is None or min(counts) >= planned.seeds:
        return f"n = {span(counts)}"
    return f"{planned.lacking}: n = {span(counts)} of {planned.seeds}"


_ENDS = (measures.FINAL_BEST, measures.AUC)
_COLORS = (plot.BLUE, plot.RED, plot.SKY, plot.YELLOW, plot.ORANGE, plot.PURPLE)
_VALID, *_FAILED = zip(OUTCOMES, chain(_COLORS, repeat(plot.GREY)), strict=False)
_OUTCOME_COLORS: Mapping[Outcome, str] = dict([_VALID, *reversed(_FAILED)])


def best_so_far_table(evidence: Evidence) -> str:
    """Long form: condition, seed, group, best score so far."""
    rows = [
        (run.condition, run.seed, t + 1, float(best), evidence.unit)
        for run in evidence.results.cohort
        for t, best in enumerate(run.best)
    ]
    return lines(("condition", "seed", "group", "best_so_far", "unit"), rows)


def _draw_best(figure: Figure, frame: CsvFrame) -> None:
    axes = figure.add_subplot()
    plot.mean_and_range(axes, frame, "best_so_far")
    axes.set_xlabel("evaluated groups")
    axes.set_ylabel(f"best score so far\n({frame.rows[0]['unit']})")
    axes.legend(loc="upper left")


def outcomes_table(evidence: Evidence) -> str:
    """Panel a: shares of outcomes; b: gain of the best so far over Frozen; c: gains of single seeds."""
    results, unit = evidence.results, evidence.unit
    rows: list[tuple[Value, ...]] = []
    for run in results.cohort:
        for code, outcome in enumerate(OUTCOMES):
            share = 100.0 * float((run.batch.outcome == code).mean())
            rows.append(("a", run.condition, "live", run.seed, outcome.value, share, PERCENT))
    for comparison in measures.compare_with(results.cohort, FROZEN):
        for run, frozen in comparison.pairs:
            for t, gain in enumerate(run.best - frozen.best):
                rows.append(("b", run.condition, "live", run.seed, t + 1, float(gain), unit))
    for layer, compared in zip(("live", "restart"), _single_gains(results), strict=True):
        for comparison in compared:
            for run, frozen in comparison.pairs:
                ends = measures.differences(run, frozen, _ENDS)
                for measure, cell in zip(_ENDS, ends.values(), strict=True):
                    row = ("c", run.condition, layer, run.seed, measure.heading, cell.number, unit)
                    rows.append(row)
    return lines(("panel", "condition", "layer", "seed", "what", "value", "unit"), rows)


def _single_gains(results: Results) -> tuple[tuple[measures.RunComparison, ...], ...]:
    """Live and restarted runs over Frozen, over one horizon; live ones alone where no restart compares."""
    try:
        _, live = restarts_and_live(results)
        restarted = (c for c in restart_comparisons(results) if c.second == f"live/{FROZEN}")
        return measures.compare_with(live, FROZEN), tuple(restarted)
    except NoTableError:
        return measures.compare_with(results.cohort, FROZEN), ()


def _draw_outcomes(figure: Figure, frame: CsvFrame) -> None:
    (first, second), (third, fourth) = figure.subplots(2, 2, width_ratios=(1.15, 1))
    _draw_shares(first, frame.where(panel="a"))
    _draw_gains(second, frame.where(panel="b"))
    for axes, which, measure in zip((third, fourth), "cd", _ENDS, strict=True):
        plot.zero_line(axes, vertical=False)
        plot.paired_points(axes, frame.where(panel="c", what=measure.heading))
        plot.panel_title(axes, which, f"{measure.heading}, single seeds")
    third.set_ylabel("gain over Frozen\nof the same seed")
    trained = [name for name in frame.names("condition") if name != FROZEN]
    plot.legend(figure, trained, *plot.live_and_restarted(), note=plot.seed_count(frame))


def _draw_shares(axes: Axes, frame: CsvFrame) -> None:
    conditions, left = frame.names("condition"), np.zeros(len(frame.names("condition")))
    for outcome, hue in _OUTCOME_COLORS.items():
        wide = np.array([frame.where(condition=c, what=outcome.value).mean() for c in conditions])
        label = outcome.value.replace("_", " ")
        axes.barh(range(len(conditions)), wide, left=left, color=hue, label=label, height=0.7)
        left += wide
    seeds = [len(frame.where(condition=c).names("seed")) for c in conditions]
    names = [f"{plot.display_name(c)}\nn = {n}" for c, n in zip(conditions, seeds, strict=True)]
    axes.set_yticks(range(len(conditions)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("completions (%, mean over seeds)")
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.42, -0.3), handlelength=0.9, columnspacing=0.8)
    plot.panel_title(axes, "a", "Outcomes of completions")


def _draw_gains(axes: Axes, frame: CsvFrame) -> None:
    plot.zero_line(axes, vertical=False)
    if frame.rows:
        plot.mean_and_range(axes, frame, "value")
    axes.set_xlabel("evaluated groups")
    axes.set_ylabel("gain in best so far\nover Frozen")
    plot.panel_title(axes, "b", "Mean gain and range of seeds")


BEST_SO_FAR = Plot(
    "best_so_far",
    "Best score so far",
    """Mean over seeds of the best score after each group, the seed heuristic included; bands reach from
    the lowest to the highest seed. Higher is better.""",
    best_so_far_table,
    _draw_best,
    (3.4, 2.6),
    ("core_results", "core_seeds"),
)
OUTCOMES_PLOT = Plot(
    "outcomes",
    "Proposal and search outcomes",
    """(a) What became of completions, mean over seeds. (b) Mean gain of the best so far over the Frozen
    run of the same seed; bands are the range of the seeds. (c, d) Gains of single seeds over Frozen, live
    (filled) and restarted with the final adapter, a fresh population and no updates (open); lines join
    the same seed.""",
    outcomes_table,
    _draw_outcomes,
    (7.0, 4.6),
    ("core_seeds", "paired", "restart_paired"),
    layers=("cohort", "restart"),
)


_PAIRED_COLUMNS = 3


def paired_table(evidence: Evidence) -> str:
    """Same-seed differences of every measure: comparison, first and second condition, seed, measure."""
    rows = [
        (c.name, c.first, c.second, first.seed, change, cell.number, unit_of(change, evidence.unit))
        for c in core.comparisons(evidence.results)
        for first, second in c.pairs
        for change, cell in measures.differences(first, second).items()
    ]
    return lines(("comparison", "first", "second", "seed", "measure", "value", "unit"), rows)


def _draw_paired(figure: Figure, frame: CsvFrame) -> None:
    for axes, panel in plot.panels(figure, frame, _PAIRED_COLUMNS, sharey=True):
        plot.zero_line(axes)
        for place, (_, own) in enumerate(panel.by("comparison")):
            known, hue = own.known().numbers(), plot.color(own.rows[0]["first"])
            if not len(known):
                continue
            axes.plot((known.min(), known.max()), (place, place), color=hue, lw=1.6, alpha=0.45)
            axes.plot(known, [place] * len(known), "o", color=hue, markersize=2.6, **plot.HOLLOW)
            axes.plot(own.mean(), place, "D", color=hue, markersize=4.2)
        axes.locator_params(axis="x", nbins=4)
    labels = []
    for _, own in frame.by("comparison"):
        first, second = (plot.display_name(own.rows[0][which]) for which in ("first", "second"))
        labels.append(f"{first} − {second} (n = {len(own.names('seed'))})")
    top = figure.axes[0]
    top.set_yticks(range(len(labels)), labels)
    top.invert_yaxis()
    note = f"first minus second of the same seed; scores in {plot.score_unit(frame)}, higher is better"
    figure.supxlabel(note, fontsize=7.5)


def stages_table(evidence: Evidence) -> str:
    """The measures of the proposal stream by run and stage."""
    units = {one: unit_of(one.heading, evidence.unit) for one in measures.STREAM}
    rows = [
        (run.condition, run.seed, stage, one.heading, cells[one.heading].number, unit)
        for run in evidence.results.cohort
        for stage, cells in core.stages.function(run).items()
        for one, unit in units.items()
    ]
    return lines(("condition", "seed", "stage", "measure", "value", "unit"), rows)


def _draw_stages(figure: Figure, frame: CsvFrame) -> None:
    conditions, stages = frame.names("condition"), frame.names("stage")
    for axes, panel in plot.panels(figure, frame):
        for offset, condition in zip(plot.offsets(len(conditions), 0.36), conditions, strict=True):
            parts = [panel.where(condition=condition, stage=stage) for stage in stages]
            places = np.arange(len(stages)) + offset
            axes.plot(places, [part.mean() for part in parts], **plot.line_style(condition))
            for place, part in zip(places, parts, strict=True):
                known = part.known().numbers()
                if len(known):
                    hue = plot.color(condition)
                    axes.plot((place, place), (known.min(), known.max()), color=hue, lw=0.8)
        axes.set_xticks(range(len(stages)), stages)
        axes.set_xlim(-0.4, len(stages) - 0.6)
        axes.grid(axis="y", color=plot.GREY, alpha=0.25, lw=0.4)
    plot.legend(figure, conditions, note=plot.seed_count(frame))


PAIRED_EFFECTS = Plot(
    "paired_effects",
    "Paired effects",
    """Differences between runs of the same seed in the live cohort. Diamonds are means, bars the range of
    the seeds, open circles the seeds. Right of zero favours the first condition. Against Frozen, a
    difference combines online updating with the construction of the reward; against Native only the
    construction differs.""",
    paired_table,
    _draw_paired,
    (7.0, 5.2 * -(-len(measures.ALL) // _PAIRED_COLUMNS) / 3),
    ("paired", "paired_signs"),
    remark=lambda frame: core.few_seeds(len(own.names("seed")) for _, own in frame.by("comparison")),
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


_ADMITTED, _PRECISION = "admitted", "precision"
_AROUND = (measures.VALID, measures.VALID_ONLY)
_ROOM = 1.1  # for the marker of the largest value
_SHORT = ("parsed", "executable", "valid", "parent-impr.", "frontier")


def atlas_table(evidence: Evidence) -> str:
    """Panels a to d: condition, seed, part (an operator, a measure), what, value and its unit."""
    names, rows = core.operator_names(evidence.results.cohort), list[tuple[Value, ...]]()
    for run in evidence.results.cohort:
        of_run = run.condition, run.seed
        for operator, cells in core.funnels(run, names).items():
            if operator != "all":
                shares = ((stage, cells[stage].number) for stage in core.FUNNEL)
                rows += (("a", *of_run, operator, *share, PERCENT) for share in shares)
        admitted = core.admissions.function(run)
        rows.append(("b", *of_run, "", _ADMITTED, admitted["Admitted (%)"].number, PERCENT))
        rows.append(("b", *of_run, "", _PRECISION, admitted["Precision (%)"].number, PERCENT))
        parts = core.collapse_parts(run)
        for measure in _AROUND:
            change = parts[measure.heading]["Change"].number
            rows.append(
                ("c", *of_run, measure.change, "change", change, unit_of(measure.change, evidence.unit))
            )
        if run.trained and len(run.groups) > core.RECURRENCE_GROUPS:
            gap = core.recurrence_cells(run)[core.RECURRING_GAP].number
            rows.append(("d", *of_run, "", core.RECURRING_GAP, gap, POINTS))
    return lines(("panel", "condition", "seed", "part", "what", "value", "unit"), rows)


def _draw_atlas(figure: Figure, frame: CsvFrame) -> None:
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.05))
    _draw_funnels(top, frame.where(panel="a"))
    collapses = frame.where(panel="c")
    parts = collapses.names("part")
    first, *around, last = bottom.subplots(1, len(parts) + 2, width_ratios=(1.3, *(1 for _ in parts), 1))
    _draw_admissions(first, frame.where(panel="b"))
    for axes, measure in zip(around, parts, strict=True):
        # As in the table: over the seeds that have a collapse.
        _draw_dots(axes, collapses.where(part=measure).known(), "no population collapsed")
        axes.set_ylabel(f"{measure}\nafter minus before")
    plot.panel_title(around[0], "c", "Around collapses")
    _draw_dots(last, frame.where(panel="d"), f"no run has more than {core.RECURRENCE_GROUPS} groups")
    last.set_ylabel("recurring: positive minus\nnot positive (points)")
    plot.panel_title(last, "d", "Recurrence")
    plot.legend(figure, frame.names("condition"), note=plot.seed_count(frame))


def _draw_funnels(figure: SubFigure, frame: CsvFrame) -> None:
    operators = frame.names("part")
    panels = figure.subplots(1, len(operators), sharey=True, squeeze=False)[0]
    for axes, operator in zip(panels, operators, strict=True):
        own = frame.where(part=operator)
        for condition, same in own.by("condition"):
            shares = [same.where(what=stage).mean() for stage in core.FUNNEL]
            axes.plot(shares, **plot.line_style(condition), markersize=3)
        if not any(row["value"] for row in own.rows):
            axes.text(2, 50, "never drawn", ha="center", color=plot.GREY)
        axes.set_title(plot.display_name(operator))
        axes.set_xticks(range(len(core.FUNNEL)), _SHORT, rotation=55, ha="right", rotation_mode="anchor")
        axes.set_ylim(-3, 103)
        axes.grid(axis="y", color=plot.GREY, alpha=0.25, lw=0.4)
    axes = figure.axes[0]
    axes.set_ylabel("completions (%)")
    plot.panel_title(axes, "a", plot.display_name(operators[0]))


def _draw_admissions(axes: Axes, frame: CsvFrame) -> None:
    for condition, own in frame.by("condition"):
        x, y = own.where(what=_ADMITTED).numbers(), own.where(what=_PRECISION).numbers()
        axes.plot(x, y, **plot.points(condition), **plot.HOLLOW)
    axes.set_xlabel("admitted (% of completions)")
    axes.set_ylabel("beat the frontier\n(% of admissions)")
    for set_limits, what in ((axes.set_xlim, _ADMITTED), (axes.set_ylim, _PRECISION)):
        known = frame.where(what=what).known().numbers()
        set_limits(0, _ROOM * max(known.max(initial=0.0), 1.0))
    plot.panel_title(axes, "b", "Admissions")


def _draw_dots(axes: Axes, frame: CsvFrame, otherwise: str) -> None:
    if not frame.known().rows:
        plot.empty_panel(axes, otherwise)
        return
    plot.zero_line(axes, vertical=False)
    plot.seed_points_by_condition(axes, frame)
    counts = [len(own.known().rows) for _, own in frame.by("condition")]
    axes.set_xticks(range(len(counts)), [str(count) for count in counts])
    axes.set_xlabel("n")


ATLAS = Plot(
    "diagnostic_atlas",
    "Diagnostic atlas",
    f"""The live cohort. (a) Funnels by operator, mean over seeds, none where a seed never drew the
    operator; a creation has no parent to improve on. (b) How much was admitted to the archive, and how
    much of that beat the frontier before its group; a marker is a run. (c) Validity and valid-only
    performance after a collapse minus before it, mean over a run's windows with a value on both sides;
    n is the runs that have one. (d) Share of responses whose exact text recurs within
    {core.RECURRENCE_GROUPS} later groups: with positive advantage minus without. Open markers are seeds, bars
    their means. All of it is descriptive and identifies no effect of an operator or a collapse.""",
    atlas_table,
    _draw_atlas,
    (7.0, 5.0),
    ("operators", "admissions", "collapses", "recurrence"),
)
