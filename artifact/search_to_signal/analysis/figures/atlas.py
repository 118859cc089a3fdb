"""The diagnostic atlas of the live cohort (paper, fig. diagnostic-atlas)."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from search_to_signal.analysis.figures import drawing
from search_to_signal.analysis.figures.plot import CsvFrame, Plot, Value, lines
from search_to_signal.analysis.results import RecordedRun
from search_to_signal.analysis.tables.catalogue import Evidence
from search_to_signal.analysis.tables.cells import PERCENT, POINTS, unit_of
from search_to_signal.analysis.tables.core import RECURRENCE_COLUMNS, recurrence_parts
from search_to_signal.analysis.tables.core import RECURRENCE_GROUPS as HORIZON
from search_to_signal.analysis.tables.measures import VALID, VALID_ONLY
from search_to_signal.analysis.tables.proposals import (
    COLLAPSE_COLUMNS,
    FUNNEL,
    admission_cells,
    collapse_parts,
    funnels,
    operator_names,
)

_ADMITTED, _PRECISION = "admitted", "precision"
_AROUND = (VALID, VALID_ONLY)
_ROOM = 1.1  # for the marker of the largest value
_SHORT = ("parsed", "executable", "valid", "parent-impr.", "frontier")


def atlas_table(evidence: Evidence) -> str:
    """Panels a to d: condition, seed, part (an operator, a measure), what, value and its unit."""
    names = operator_names(evidence.results.cohort)
    rows = [
        (panel, run.condition, run.seed, *row)
        for run in evidence.results.cohort
        for panel, *row in (
            *_funnels(run, names),
            *_admissions(run),
            *_collapses(run, evidence.unit),
            *_recurrence(run),
        )
    ]
    return lines(("panel", "condition", "seed", "part", "what", "value", "unit"), rows)


def _funnels(run: RecordedRun, names: Sequence[str]) -> Iterator[tuple[Value, ...]]:
    for operator, (_, *shares) in funnels(run, names).items():
        if operator != "all":
            for (stage, _), cell in zip(FUNNEL, shares, strict=True):
                yield "a", operator, stage, cell.number, PERCENT


def _admissions(run: RecordedRun) -> Iterator[tuple[Value, ...]]:
    _, _, precision, admitted = admission_cells(run)[""]
    yield "b", "", _ADMITTED, admitted.number, PERCENT
    yield "b", "", _PRECISION, precision.number, PERCENT


def _collapses(run: RecordedRun, unit: str) -> Iterator[tuple[Value, ...]]:
    parts = collapse_parts(run)
    for measure in _AROUND:
        change = parts[measure.heading][COLLAPSE_COLUMNS.index("Change")]
        yield "c", measure.change, "change", change.number, unit_of(measure.change, unit)


def _recurrence(run: RecordedRun) -> Iterator[tuple[Value, ...]]:
    if run.trained and len(run.groups) > HORIZON:
        yield "d", "", RECURRENCE_COLUMNS[3], recurrence_parts(run)[""][3].number, POINTS


def _draw(figure: Figure, frame: CsvFrame) -> None:
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
    _draw_dots(last, frame.where(panel="d"), f"no run has more than {HORIZON} groups")
    last.set_ylabel("recurring: positive minus\nnot positive (points)")
    drawing.panel_title(last, "d", "Recurrence")
    drawing.legend(figure, frame.names("condition"), note=drawing.seed_count(frame))


def _draw_funnels(figure: SubFigure, frame: CsvFrame) -> None:
    operators = frame.names("part")
    panels = figure.subplots(1, len(operators), sharey=True, squeeze=False)[0]
    for axes, operator in zip(panels, operators, strict=True):
        own = frame.where(part=operator)
        for condition, same in own.by("condition"):
            shares = [same.where(what=stage).mean() for stage, _ in FUNNEL]
            axes.plot(shares, **drawing.line_style(condition), markersize=3)
        if not any(row["value"] for row in own.rows):
            axes.text(2, 50, "never drawn", ha="center", color=drawing.GREY)
        axes.set_title(drawing.display_name(operator))
        axes.set_xticks(range(len(FUNNEL)), _SHORT, rotation=55, ha="right", rotation_mode="anchor")
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
    n is the runs that have one. (d) Share of responses whose exact text recurs within {HORIZON} later
    groups: with positive advantage minus without. Open markers are seeds, bars their means. All of it
    is descriptive and identifies no effect of an operator or a collapse.""",
    atlas_table,
    _draw,
    (7.0, 5.0),
    ("operators", "admissions", "collapses", "recurrence"),
)
