"""Curves, outcomes, paired effects, stage dynamics and the diagnostic atlas of the live cohort.

Paper, figs. downstream-evidence, paired-effects, stage-dynamics and diagnostic-atlas.
"""

from collections.abc import Mapping
from itertools import chain, repeat

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from search_to_signal.layers.restart.tables import restart_comparisons, restarts_and_live
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.groups import OUTCOMES
from search_to_signal.records.schema import Outcome
from search_to_signal.report.figures import drawing
from search_to_signal.report.figures.plot import CsvFrame, Plot, Value, lines
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.tables import core, measures, paired
from search_to_signal.report.tables.catalogue import Evidence
from search_to_signal.report.tables.cells import PERCENT, POINTS, unit_of

_ENDS = (measures.FINAL_BEST, measures.AUC)
_COLORS = (drawing.BLUE, drawing.RED, drawing.SKY, drawing.YELLOW, drawing.ORANGE, drawing.PURPLE)
_VALID, *_FAILED = zip(OUTCOMES, chain(_COLORS, repeat(drawing.GREY)), strict=False)
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
    drawing.mean_and_range(axes, frame, "best_so_far")
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
        drawing.zero_line(axes, vertical=False)
        drawing.paired_points(axes, frame.where(panel="c", what=measure.heading))
        drawing.panel_title(axes, which, f"{measure.heading}, single seeds")
    third.set_ylabel("gain over Frozen\nof the same seed")
    trained = [name for name in frame.names("condition") if name != FROZEN]
    drawing.legend(figure, trained, *drawing.live_and_restarted(), note=drawing.seed_count(frame))


def _draw_shares(axes: Axes, frame: CsvFrame) -> None:
    conditions, left = frame.names("condition"), np.zeros(len(frame.names("condition")))
    for outcome, hue in _OUTCOME_COLORS.items():
        wide = np.array([frame.where(condition=c, what=outcome.value).mean() for c in conditions])
        label = outcome.value.replace("_", " ")
        axes.barh(range(len(conditions)), wide, left=left, color=hue, label=label, height=0.7)
        left += wide
    seeds = [len(frame.where(condition=c).names("seed")) for c in conditions]
    names = [f"{drawing.display_name(c)}\nn = {n}" for c, n in zip(conditions, seeds, strict=True)]
    axes.set_yticks(range(len(conditions)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("completions (%, mean over seeds)")
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.42, -0.3), handlelength=0.9, columnspacing=0.8)
    drawing.panel_title(axes, "a", "Outcomes of completions")


def _draw_gains(axes: Axes, frame: CsvFrame) -> None:
    drawing.zero_line(axes, vertical=False)
    if frame.rows:
        drawing.mean_and_range(axes, frame, "value")
    axes.set_xlabel("evaluated groups")
    axes.set_ylabel("gain in best so far\nover Frozen")
    drawing.panel_title(axes, "b", "Mean gain and range of seeds")


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
        for c in paired.comparisons(evidence.results)
        for first, second in c.pairs
        for change, cell in measures.differences(first, second).items()
    ]
    return lines(("comparison", "first", "second", "seed", "measure", "value", "unit"), rows)


def _draw_paired(figure: Figure, frame: CsvFrame) -> None:
    for axes, panel in drawing.panels(figure, frame, "measure", _PAIRED_COLUMNS, sharey=True):
        drawing.zero_line(axes)
        for place, (_, own) in enumerate(panel.by("comparison")):
            known, hue = own.known().numbers(), drawing.color(own.rows[0]["first"])
            if not len(known):
                continue
            axes.plot((known.min(), known.max()), (place, place), color=hue, lw=1.6, alpha=0.45)
            axes.plot(known, [place] * len(known), "o", color=hue, markersize=2.6, **drawing.HOLLOW)
            axes.plot(own.mean(), place, "D", color=hue, markersize=4.2)
        axes.locator_params(axis="x", nbins=4)
    labels = []
    for _, own in frame.by("comparison"):
        first, second = (drawing.display_name(own.rows[0][which]) for which in ("first", "second"))
        labels.append(f"{first} − {second} (n = {len(own.names('seed'))})")
    top = figure.axes[0]
    top.set_yticks(range(len(labels)), labels)
    top.invert_yaxis()
    note = f"first minus second of the same seed; scores in {drawing.score_unit(frame)}, higher is better"
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
    for axes, panel in drawing.panels(figure, frame, "measure"):
        for offset, condition in zip(drawing.offsets(len(conditions), 0.36), conditions, strict=True):
            parts = [panel.where(condition=condition, stage=stage) for stage in stages]
            places = np.arange(len(stages)) + offset
            axes.plot(places, [part.mean() for part in parts], **drawing.line_style(condition))
            for place, part in zip(places, parts, strict=True):
                known = part.known().numbers()
                if len(known):
                    hue = drawing.color(condition)
                    axes.plot((place, place), (known.min(), known.max()), color=hue, lw=0.8)
        axes.set_xticks(range(len(stages)), stages)
        axes.set_xlim(-0.4, len(stages) - 0.6)
        axes.grid(axis="y", color=drawing.GREY, alpha=0.25, lw=0.4)
    drawing.legend(figure, conditions, note=drawing.seed_count(frame))


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
    remark=lambda frame: paired.few_seeds(len(own.names("seed")) for _, own in frame.by("comparison")),
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
    drawing.panel_title(around[0], "c", "Around collapses")
    _draw_dots(last, frame.where(panel="d"), f"no run has more than {core.RECURRENCE_GROUPS} groups")
    last.set_ylabel("recurring: positive minus\nnot positive (points)")
    drawing.panel_title(last, "d", "Recurrence")
    drawing.legend(figure, frame.names("condition"), note=drawing.seed_count(frame))


def _draw_funnels(figure: SubFigure, frame: CsvFrame) -> None:
    operators = frame.names("part")
    panels = figure.subplots(1, len(operators), sharey=True, squeeze=False)[0]
    for axes, operator in zip(panels, operators, strict=True):
        own = frame.where(part=operator)
        for condition, same in own.by("condition"):
            shares = [same.where(what=stage).mean() for stage in core.FUNNEL]
            axes.plot(shares, **drawing.line_style(condition), markersize=3)
        if not any(row["value"] for row in own.rows):
            axes.text(2, 50, "never drawn", ha="center", color=drawing.GREY)
        axes.set_title(drawing.display_name(operator))
        axes.set_xticks(range(len(core.FUNNEL)), _SHORT, rotation=55, ha="right", rotation_mode="anchor")
        axes.set_ylim(-3, 103)
        axes.grid(axis="y", color=drawing.GREY, alpha=0.25, lw=0.4)
    axes = figure.axes[0]
    axes.set_ylabel("completions (%)")
    drawing.panel_title(axes, "a", drawing.display_name(operators[0]))


def _draw_admissions(axes: Axes, frame: CsvFrame) -> None:
    for condition, own in frame.by("condition"):
        x, y = own.where(what=_ADMITTED).numbers(), own.where(what=_PRECISION).numbers()
        axes.plot(x, y, **drawing.points(condition), **drawing.HOLLOW)
    axes.set_xlabel("admitted (% of completions)")
    axes.set_ylabel("beat the frontier\n(% of admissions)")
    for set_limits, what in ((axes.set_xlim, _ADMITTED), (axes.set_ylim, _PRECISION)):
        known = frame.where(what=what).known().numbers()
        set_limits(0, _ROOM * max(known.max(initial=0.0), 1.0))
    drawing.panel_title(axes, "b", "Admissions")


def _draw_dots(axes: Axes, frame: CsvFrame, otherwise: str) -> None:
    if not frame.known().rows:
        drawing.empty_panel(axes, otherwise)
        return
    drawing.zero_line(axes, vertical=False)
    drawing.seed_points_by_condition(axes, frame)
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
