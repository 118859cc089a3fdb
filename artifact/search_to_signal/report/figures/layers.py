"""Breadth, restart, held-out sizes, tours, learner path (paper, figs. breadth, restart, heldout)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from search_to_signal.base.progress import counted
from search_to_signal.layers.audit.tables import audited_cells
from search_to_signal.layers.breadth.tables import breadth_comparisons
from search_to_signal.layers.restart.tables import restarts_and_live
from search_to_signal.layers.updates.tables import COSINE, OF_COMPLETIONS, OF_TOKENS, STEPS, VARIANTS
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.heldout import read_tours
from search_to_signal.report.figures import plot
from search_to_signal.report.figures.plot import CsvFrame, Plot, Value, lines
from search_to_signal.report.results import NoTableError
from search_to_signal.report.tables import measures
from search_to_signal.report.tables.catalogue import Evidence
from search_to_signal.report.tables.cells import unit_of
from search_to_signal.report.tables.credit import CHANGED, trained

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
    units = {cell: plot.score_unit(own) for cell, own in frame.by("cell")}
    rows = {
        unit: CsvFrame(tuple(row for row in frame.rows if units[row["cell"]] == unit))
        for unit in dict.fromkeys(units.values())
    }
    sizes = [len(own.names("cell")) for own in rows.values()]
    grid = figure.subplots(len(rows), len(shown), squeeze=False, height_ratios=[1 + size for size in sizes])
    for panels, (unit, own) in zip(grid, rows.items(), strict=True):
        for axes, measure in zip(panels, shown, strict=True):
            plot.zero_line(axes)
            _draw_cells(axes, own.where(measure=measure))
            axes.locator_params(axis="x", nbins=3)
            axes.set_yticks(range(len(own.names("cell"))), [])
        panels[0].set_yticks(range(len(own.names("cell"))), own.names("cell"))
        panels[0].set_ylabel(f"scores in\n{unit}")
    for number, (axes, measure) in enumerate(zip(grid[0], shown, strict=True)):
        short = measure.replace("Trajectory ", "").replace("Improve yield", "Improve")
        plot.panel_title(axes, plot.letter(number), short.replace("(points)", "(pts)"))
    grid[-1][len(shown) // 2].set_xlabel("online minus Frozen, one seed per cell")
    plot.legend(figure, frame.names("condition"))


def _draw_cells(axes: Axes, frame: CsvFrame) -> None:
    conditions = frame.names("condition")
    for place, cell in enumerate(frame.names("cell")):
        axes.axhline(place, color=plot.GREY, lw=0.4, alpha=0.3, zorder=0)
        for offset, condition in zip(plot.offsets(len(conditions), 0.4), conditions, strict=True):
            values = frame.where(cell=cell, condition=condition).numbers()
            axes.plot(values, [place + offset] * len(values), **plot.points(condition))
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
    for axes, own in plot.panels(figure, frame):
        plot.paired_points(axes, own)
        axes.axhline(own.where(condition=FROZEN).mean(), color=plot.GREY, lw=0.6, ls="--", zorder=0)
    marks, note = plot.live_and_restarted(), plot.seed_count(frame)
    plot.legend(figure, frame.names("condition"), *marks, note=note)


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
    for offset, condition in zip(plot.offsets(len(conditions), 0.6), conditions, strict=True):
        for place, size in enumerate(sizes):
            own = frame.where(condition=condition, size=size)
            plot.seed_points(axes, own, place + offset, condition, "gap_percent")
    axes.set_xticks(range(len(sizes)), [size.removeprefix("heldout_") for size in sizes])
    axes.set_ylabel("optimality gap (%), lower is better")
    axes.set_xlabel("cities of the held-out instances")
    seeds = len(frame.names("seed"))
    axes.set_title(f"final heuristics of n = {counted(seeds, 'seed')}", fontsize=7.5)
    plot.legend(figure, conditions)


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


def _draw_tours(figure: Figure, frame: CsvFrame) -> None:
    for axes, which, name in zip(figure.subplots(1, 2), "ab", ("seed", "best"), strict=True):
        own = frame.where(tour=name)
        x, y = own.numbers("x").tolist(), own.numbers("y").tolist()
        axes.plot([*x, x[0]], [*y, y[0]], "-o", color=plot.BLUE, lw=1.0, markersize=2.5)
        axes.plot(x[0], y[0], "s", color=plot.GREY, markersize=6, zorder=0)
        axes.set_aspect("equal")
        axes.set_xticks([])
        axes.set_yticks([])
        title = "The seed" if name == "seed" else f"The best, of {own.rows[0]['run']}"
        plot.panel_title(axes, which, f"{title}: {own.numbers('score')[0]:.3f}")


def _remark_on_tours(frame: CsvFrame) -> str:
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
    _draw_tours,
    (7.0, 3.4),
    ("core_seeds",),
    remark=_remark_on_tours,
)


# The learner path: which reward changes the normalizer erases, and which classes get credit (paper, fig.
# signal-propagation): mechanism separation, no efficacy.

UPDATES = "matched_mappings"
_SHARES = {"prevalence": "Prevalence (%)", "mass": "Credit mass (%)", "enrichment": "Enrichment"}
_MEASURES = {
    COSINE: "cosine of\nadapter changes",
    OF_COMPLETIONS: "max. withheld diff. of\ncompletion means (nats)",
    OF_TOKENS: "max. withheld diff. of\nsingle tokens (nats)",
}
_TASK_COLORS = {"tsp": plot.BLACK, "cvrp": plot.ORANGE, "obp": plot.SKY, "op": plot.PURPLE}
_MODEL_MARKERS = ("o", "^", "s", "D", "v")


def signal_table(evidence: Evidence) -> str:
    """Panels a to d: condition (in c and d: the cell), seed, part, what and value.

    In c and d also the task, as ``style``, the model and ``n``: groups in c, comparisons in d, which has its
    ``steps`` too. Rows of b without a seed are over seeds.
    """
    table, runs, rows = evidence.table("reward_changes"), trained(evidence.results), list[tuple[Value, ...]]()
    for run in runs:
        for name, column in CHANGED.items():
            changed = table.cell(run.name, column).number
            rows.append(("a", run.condition, run.seed, name, "groups changed (%)", changed))
    table = evidence.table("credit")
    names: dict[str, tuple[str, int | None]] = {run.condition: (run.condition, None) for run in runs}
    names |= {run.name: (run.condition, run.seed) for run in runs}
    for row in table.rows:
        name, part = row.label.split("/", 1)
        for what, column in _SHARES.items():
            rows.append(("b", *names[name], part, what, table.cell(row.label, column).number))
    if pairs := evidence.tables.get("replay_pairs"):
        facts = {cell: runs[0].facts for cell, runs in audited_cells(evidence.results).items()}
        for row in pairs.rows:
            place, pair = row.label.split("/", 1)
            same = pairs.cell(row.label, "Equivalent (%)")
            apart = None if same.number is None else 100.0 - same.number
            look = facts[place].problem, Path(facts[place].model).name, same.n
            rows.append(("c", place, None, pair, "separated (%)", apart, *look))
    # Of the matched updates the steps in sequence and alone: cosine of adapter changes, and differences in
    # withheld contexts.
    if updates := evidence.tables.get(UPDATES):
        for row in updates.rows:
            place, pair = row.label.split(": ", 1)
            cell, variant = place.rsplit(", ", 1)
            if variant in (VARIANTS["fresh"], VARIANTS["history"]):
                steps = updates.cell(row.label, STEPS).value
                task, model = cell.split(" ", 1)
                for what in _MEASURES:
                    shown, sides = updates.cell(row.label, what), pair.replace(" – ", ", ")
                    look = task, Path(model).name, shown.n
                    rows.append(("d", cell, None, sides, what, shown.number, *look, steps))
    columns = ("panel", "condition", "seed", "part", "what", "value", "style", "model", "n", "steps")
    return lines(columns, [(*row, *[None] * (len(columns) - len(row))) for row in rows])


def _draw_signal(figure: Figure, frame: CsvFrame) -> None:
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.1))
    first, second = top.subplots(1, 2)
    _draw_changes(first, frame.where(panel="a"))
    _draw_credit(second, frame.where(panel="b"))
    seeded = frame.where(panel="a")
    classes, credit = plot.legend_marker("completions"), plot.legend_marker("credit", "")
    note = plot.seed_count(seeded)
    plot.legend(top, seeded.names("condition"), classes, credit, note=note)
    pairs, *updates = bottom.subplots(1, 1 + len(_MEASURES))
    lower = CsvFrame(tuple(row for row in frame.rows if row["panel"] in "cd"))
    models = sorted(lower.names("model"))
    _draw_pairs(pairs, frame.where(panel="c"), models, "the normalizer replay has not run")
    plot.panel_title(pairs, "c", "Same records")
    pairs.set_xlabel("groups with other\nadvantages (%)")
    pairs.set_xlim(-4, 104)
    for axes, (what, name) in zip(updates, _MEASURES.items(), strict=True):
        head = axes is updates[0]
        own = frame.where(panel="d", what=what)
        absent = "no matched update has credit" if own.rows else "matched updates have not run"
        _draw_pairs(axes, own, models, absent if head else "")
        axes.set_xlabel(name)
        axes.locator_params(axis="x", nbins=3)
        if not head or frame.where(panel="d").names("part") == frame.where(panel="c").names("part"):
            axes.tick_params(axis="y", labelleft=False)
    # The number of matched updates in sequence is that behind the filled markers.
    steps = _steps(frame.where(panel="d"))
    title = "Matched updates, single steps" if steps else "Matched updates"
    if steps[1:]:
        title = f"Matched updates: {steps[-1]} in sequence (open: single steps)"
    plot.panel_title(updates[0], "d", title)
    looks = dict.fromkeys((row["style"], row["model"]) for row in lower.rows)
    handles = [_mark(task, model, models) for task, model in looks]
    bottom.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=1.2)


def _mark(task: str, model: str, models: Sequence[str]) -> Line2D:
    """Return a marker with the task's colour and the model's shape, the same in both panels."""
    hue = _TASK_COLORS.get(task, plot.GREEN)
    shape = _MODEL_MARKERS[models.index(model) % len(_MODEL_MARKERS)]
    return Line2D([], [], color=hue, marker=shape, linestyle="none", markersize=3.5, label=f"{task} {model}")


def _remark_on_signal(frame: CsvFrame) -> str:
    """The groups that each reward change moved, lowest to highest seed, and what panel d is made of."""
    parts = []
    for part, own in frame.where(panel="a").by("part"):
        ranges = []
        for name, same in own.by("condition"):
            low, high = (f"{value:.0f}" for value in (same.numbers().min(), same.numbers().max()))
            values = f"{low} %" if low == high else f"{low} to {high} %"
            ranges.append(f"{values} ({plot.display_name(name)})")
        parts.append(f"{part} {', '.join(ranges)}")
    moved = f"Groups moved in (a), by seed: {'; '.join(parts)}." if parts else ""
    return " ".join(filter(None, (moved, _describe_counts(frame.where(panel="d")))))


def _describe_counts(frame: CsvFrame) -> str:
    steps = _steps(frame)
    if not steps:
        return ""
    most = max((int(n) for n in frame.where(steps="1").names("n") if n), default=0)
    single = f"each group by itself, one step with a fresh optimizer, mean over n = {most} groups per cell."
    if not steps[1:]:
        return f"In (d): {single}"
    return (
        f"Filled in (d): {steps[-1]} consecutive groups in sequence, one step each with one optimizer, like "
        f"the paper's matched updates, n = 1 sequence per cell. Open: {single}"
    )


def _steps(frame: CsvFrame) -> list[int]:
    return sorted(int(name) for name in frame.names("steps") if name)


def _draw_changes(axes: Axes, frame: CsvFrame) -> None:
    conditions, parts = frame.names("condition"), frame.names("part")
    for place, part in enumerate(parts):
        for offset, condition in zip(plot.offsets(len(conditions), 0.5), conditions, strict=True):
            plot.seed_points(axes, frame.where(part=part, condition=condition), place + offset, condition)
    axes.set_xticks(range(len(parts)), [name.replace(" ", "\n", 1) for name in parts])
    axes.set_ylabel("groups whose\nadvantages change (%)")
    axes.set_ylim(-5, 105)
    plot.panel_title(axes, "a", "What the normalizer keeps")


def _draw_credit(axes: Axes, frame: CsvFrame) -> None:
    conditions, classes = frame.names("condition"), frame.names("part")
    for place, name in enumerate(classes):
        for offset, condition in zip(plot.offsets(len(conditions), 0.55), conditions, strict=True):
            own, y = frame.where(part=name, condition=condition), place + offset
            hue = plot.color(condition)
            prevalence, mass, enrichment = (own.where(what=what, seed="").number() for what in _SHARES)
            axes.plot((prevalence, mass), (y, y), color=hue, lw=0.8)
            axes.plot(prevalence, y, **plot.points(condition), **plot.HOLLOW)
            axes.plot(mass, y, **plot.points(condition))
            if not np.isnan(enrichment):
                at: tuple[float, float] = (max(prevalence, mass), y)
                beside: dict[str, Any] = {"va": "center", "fontsize": 5.5}
                axes.annotate(f"×{enrichment:.2f}", at, (4, 0), textcoords="offset points", **beside)
    axes.set_yticks(range(len(classes)), [plot.display_name(name).replace("-", "\n", 1) for name in classes])
    axes.set_ylim(len(classes) - 0.5, -0.5)
    axes.set_xlabel("share (%)")
    plot.panel_title(axes, "b", "Credit against base rate")


def _draw_pairs(axes: Axes, frame: CsvFrame, models: Sequence[str], otherwise: str) -> None:
    """One line per pair of mappings, one marker per cell; fewer steps are open."""
    pairs, cells = frame.names("part"), frame.names("condition")
    if not frame.known().rows:
        plot.empty_panel(axes, otherwise)
        return
    places = dict(zip(cells, plot.offsets(len(cells), 0.65), strict=True))
    most = max(frame.names("steps"), key=lambda name: int(name or 0))
    for row in sorted(frame.rows, key=lambda row: row["steps"] == most):
        mark = _mark(row["style"], row["model"], models)
        mark.set_data([float(row["value"] or "nan")], [places[row["condition"]] + pairs.index(row["part"])])
        if row["steps"] != most:
            mark.set_markerfacecolor("white")
        axes.add_line(mark)
    axes.autoscale_view()
    names = [plot.display_name(pair).replace(", ", ",\n", 1) for pair in pairs]
    # Ten pairs of two lines each would overlap in letters of the usual size.
    axes.set_yticks(range(len(pairs)), names, fontsize=min(7.0, 46.0 / len(pairs)))
    axes.set_ylim(len(pairs) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=4)


SIGNAL = Plot(
    "learner_path",
    "Learner-path audit",
    """(a) Share of groups whose advantages move by more than 0.001 when their recorded rewards are shifted
    by the group's frontier, multiplied by ten, set to zero for all but improvers, or cubed. Open
    markers are seeds, bars their means. (b) Prevalence of each candidate class (open) and its share of
    positive advantage mass (filled), means over seeds; the numbers are the second over the first, the
    enrichment (D29). (c) Share of a cell's recorded groups, its runs together, in which two mappings
    give advantages that differ by more than 0.001. In (c) and (d) a colour is a task, a shape a model.
    (d) Two mappings from one adapter on the same tokens: cosine of the adapter changes, and the largest
    difference of log-probabilities, in nats, in withheld contexts, of means over each completion's
    tokens and of single tokens. This separates mechanisms and does not show that search gets better.""",
    signal_table,
    _draw_signal,
    (7.0, 5.6),
    ("reward_changes", "credit", "replay_pairs", UPDATES),
    remark=_remark_on_signal,
)
