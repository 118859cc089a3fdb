"""Breadth, restart, held-out sizes and tours (paper, figs. breadth, restart and heldout)."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from search_to_signal.base.progress import counted
from search_to_signal.layers.breadth.tables import breadth_comparisons
from search_to_signal.layers.restart.tables import restarts_and_live
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.heldout import read_tours
from search_to_signal.report.figures import drawing
from search_to_signal.report.figures.plot import CsvFrame, Plot, lines
from search_to_signal.report.results import NoTableError
from search_to_signal.report.tables import measures
from search_to_signal.report.tables.catalogue import Evidence
from search_to_signal.report.tables.cells import unit_of

_RESTART = (measures.FINAL_BEST, measures.AUC, measures.VALID, measures.VALID_ONLY)


def breadth_table(evidence: Evidence) -> str:
    """Online minus Frozen by cell, condition and seed; raises NoTableError where no cell has both."""
    rows = [
        (cell, first.condition, first.seed, change, difference.number, unit_of(change, first.unit))
        for cell, comparison in breadth_comparisons(evidence.results)
        for first, second in comparison.pairs
        for change, difference in measures.differences(first, second, measures.CORE).items()
    ]
    return lines(("cell", "condition", "seed", "measure", "value", "unit"), rows)


def _draw_breadth(figure: Figure, frame: CsvFrame) -> None:
    """One row of panels per unit of scores, so that no axis mixes two."""
    shown = frame.names("measure")
    units = {cell: drawing.score_unit(own) for cell, own in frame.by("cell")}
    rows = {
        unit: CsvFrame(tuple(row for row in frame.rows if units[row["cell"]] == unit))
        for unit in dict.fromkeys(units.values())
    }
    sizes = [len(own.names("cell")) for own in rows.values()]
    grid = figure.subplots(len(rows), len(shown), squeeze=False, height_ratios=[1 + size for size in sizes])
    for panels, (unit, own) in zip(grid, rows.items(), strict=True):
        for axes, measure in zip(panels, shown, strict=True):
            drawing.zero_line(axes)
            _draw_cells(axes, own.where(measure=measure))
            axes.locator_params(axis="x", nbins=3)
            axes.set_yticks(range(len(own.names("cell"))), [])
        panels[0].set_yticks(range(len(own.names("cell"))), own.names("cell"))
        panels[0].set_ylabel(f"scores in\n{unit}")
    for number, (axes, measure) in enumerate(zip(grid[0], shown, strict=True)):
        short = measure.replace("Trajectory ", "").replace("Improve yield", "Improve")
        drawing.panel_title(axes, drawing.letter(number), short.replace("(points)", "(pts)"))
    grid[-1][len(shown) // 2].set_xlabel("online minus Frozen, one seed per cell")
    drawing.legend(figure, frame.names("condition"))


def _draw_cells(axes: Axes, frame: CsvFrame) -> None:
    conditions = frame.names("condition")
    for place, cell in enumerate(frame.names("cell")):
        axes.axhline(place, color=drawing.GREY, lw=0.4, alpha=0.3, zorder=0)
        for offset, condition in zip(drawing.offsets(len(conditions), 0.4), conditions, strict=True):
            values = frame.where(cell=cell, condition=condition).numbers()
            axes.plot(values, [place + offset] * len(values), **drawing.points(condition))
    axes.set_ylim(len(frame.names("cell")) - 0.5, -0.5)


def restart_table(evidence: Evidence) -> str:
    """Format restarted, live and Frozen runs of the same seeds over one horizon.

    Raises NoTableError as ``restarts_and_live`` does.
    """
    restarts, cohort = restarts_and_live(evidence.results)
    wanted = {(run.condition, run.seed) for run in restarts}
    live = [run for run in cohort if run.condition == FROZEN or (run.condition, run.seed) in wanted]
    units = {measure: unit_of(measure.heading, evidence.unit) for measure in _RESTART}
    rows = [
        (layer, run.condition, run.seed, len(run.groups), measure.heading, measure.cell(run).number, unit)
        for layer, runs in (("live", live), ("restart", restarts))
        for run in runs
        for measure, unit in units.items()
    ]
    return lines(("layer", "condition", "seed", "groups", "measure", "value", "unit"), rows)


def _draw_restart(figure: Figure, frame: CsvFrame) -> None:
    for axes, own in drawing.panels(figure, frame, "measure"):
        drawing.paired_points(axes, own)
        axes.axhline(own.where(condition=FROZEN).mean(), color=drawing.GREY, lw=0.6, ls="--", zorder=0)
    marks, note = drawing.live_and_restarted(), drawing.seed_count(frame)
    drawing.legend(figure, frame.names("condition"), *marks, note=note)


def heldout_table(evidence: Evidence) -> str:
    """Optimality gap by condition, seed and size; raises NoTableError where nothing was evaluated."""
    table = evidence.table("heldout")
    gaps = [name for name in table.columns if name.startswith("Gap (%) ")]
    if not gaps:
        raise NoTableError("the cohort's problem has no reference solutions, so there are no gaps")
    rows = [
        (run.condition, run.seed, gap.removeprefix("Gap (%) "), table.cell(run.name, gap).number)
        for run in evidence.results.cohort
        for gap in gaps
    ]
    return lines(("condition", "seed", "size", "gap_percent"), rows)


def _draw_heldout(figure: Figure, frame: CsvFrame) -> None:
    axes = figure.add_subplot()
    sizes, conditions = frame.names("size"), frame.names("condition")
    for offset, condition in zip(drawing.offsets(len(conditions), 0.6), conditions, strict=True):
        for place, size in enumerate(sizes):
            own = frame.where(condition=condition, size=size)
            drawing.seed_points(axes, own, place + offset, condition, "gap_percent")
    axes.set_xticks(range(len(sizes)), [size.removeprefix("heldout_") for size in sizes])
    axes.set_ylabel("optimality gap (%), lower is better")
    axes.set_xlabel("cities of the held-out instances")
    seeds = len(frame.names("seed"))
    axes.set_title(f"final heuristics of n = {counted(seeds, 'seed')}", fontsize=7.5)
    drawing.legend(figure, conditions)


BREADTH = Plot(
    "breadth",
    "Directional breadth",
    """Online minus Frozen in single-seed cells of other tasks and models. Markers are observed directions,
    no estimates of uncertainty, and cells are never averaged. Right of zero favours online updating.
    Every row has one unit, and every panel a scale of its own.""",
    breadth_table,
    _draw_breadth,
    (7.0, 3.2),
    ("breadth", "breadth_gains"),
    layers=("breadth",),
)
RESTART = Plot(
    "restart",
    "Live and restarted search",
    """Same-seed live runs (filled) and restarts (open), which load the final adapter, start from a fresh
    population and make no optimizer step; lines join the same seed. The dashed line is the mean of Frozen.
    A live endpoint holds the checkpoint and the population it gathered, a restart the checkpoint in a new
    trajectory.""",
    restart_table,
    _draw_restart,
    (7.0, 2.4),
    ("restart", "restart_paired", "restart_signs"),
    layers=("restart",),
)
HELDOUT = Plot(
    "heldout",
    "Held-out sizes",
    """Final heuristics on instances that no search has seen, as the gap to reference tours of a real
    solver. Open markers are seeds, bars their means; lower is better. This evaluates discovered heuristics,
    not what checkpoints write on fixed contexts.""",
    heldout_table,
    _draw_heldout,
    (3.4, 2.8),
    ("heldout",),
)


def tours_table(evidence: Evidence) -> str:
    """The nodes of both tours in visiting order; raises RunDirectoryError where no tour was recorded."""
    tours = read_tours(evidence.results.directory)
    rows = [
        (name, place, node, *tours.coordinates[node], tour.score, tours.run, evidence.unit)
        for name, tour in (("seed", tours.seed), ("best", tours.best))
        for place, node in enumerate(tour.order)
    ]
    return lines(("tour", "place", "node", "x", "y", "score", "run", "unit"), rows)


def _draw(figure: Figure, frame: CsvFrame) -> None:
    for axes, which, name in zip(figure.subplots(1, 2), "ab", ("seed", "best"), strict=True):
        own = frame.where(tour=name)
        x, y = own.numbers("x").tolist(), own.numbers("y").tolist()
        axes.plot([*x, x[0]], [*y, y[0]], "-o", color=drawing.BLUE, lw=1.0, markersize=2.5)
        axes.plot(x[0], y[0], "s", color=drawing.GREY, markersize=6, zorder=0)
        axes.set_aspect("equal")
        axes.set_xticks([])
        axes.set_yticks([])
        title = "The seed" if name == "seed" else f"The best, of {own.rows[0]['run']}"
        drawing.panel_title(axes, which, f"{title}: {own.numbers('score')[0]:.3f}")


def _remark(frame: CsvFrame) -> str:
    seed, best = (frame.where(tour=name).numbers("score")[0] for name in ("seed", "best"))
    unit = frame.rows[0]["unit"]
    return (
        f"Here {unit} is {seed:.4f} with the seed and {best:.4f} with the best; on one instance this shows, "
        "and proves nothing."
    )


TOURS_PLOT = Plot(
    "tours",
    "A tour before and after",
    """One instance of the search's own split, toured by the seed heuristic (a) and by the best heuristic of
    the cohort (b), the first of equal ones; the square is where both start. It is the instance of the
    median gain over the split. Both were built again in isolation after the runs.""",
    tours_table,
    _draw,
    (7.0, 3.4),
    ("core_seeds",),
    remark=_remark,
)
