"""The learner path: which reward changes the normalizer erases, and which classes get credit.

Paper, fig. signal-propagation: mechanism separation, no efficacy.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from search_to_signal.layers.audit.tables import audited_cells
from search_to_signal.layers.updates.tables import COSINE, OF_COMPLETIONS, OF_TOKENS, STEPS, VARIANTS
from search_to_signal.report.figures import drawing
from search_to_signal.report.figures.plot import CsvFrame, Plot, Value, lines
from search_to_signal.report.results import NoTableError
from search_to_signal.report.tables.catalogue import Evidence
from search_to_signal.report.tables.credit import CHANGED, trained

UPDATES = "matched_mappings"
_SHARES = {"prevalence": "Prevalence (%)", "mass": "Credit mass (%)", "enrichment": "Enrichment"}
_MEASURES = {
    COSINE: "cosine of\nadapter changes",
    OF_COMPLETIONS: "max. withheld diff. of\ncompletion means (nats)",
    OF_TOKENS: "max. withheld diff. of\nsingle tokens (nats)",
}
_TASK_COLORS = {"tsp": drawing.BLACK, "cvrp": drawing.ORANGE, "obp": drawing.SKY, "op": drawing.PURPLE}
_MODEL_MARKERS = ("o", "^", "s", "D", "v")


def signal_table(evidence: Evidence) -> str:
    """Panels a to d: condition (in c and d: the cell), seed, part, what and value.

    In c and d also the task, as ``style``, the model and ``n``: groups in c, comparisons in d, which has its
    ``steps`` too. Rows of b without a seed are over seeds.
    """
    rows = [*_changes(evidence), *_credit(evidence), *_pairs(evidence), *_updates(evidence)]
    columns = ("panel", "condition", "seed", "part", "what", "value", "style", "model", "n", "steps")
    return lines(columns, [(*row, *[None] * (len(columns) - len(row))) for row in rows])


def _changes(evidence: Evidence) -> Iterator[tuple[Value, ...]]:
    table = evidence.table("reward_changes")
    for run in trained(evidence.results):
        for name, column in CHANGED.items():
            changed = table.cell(run.name, column).number
            yield "a", run.condition, run.seed, name, "groups changed (%)", changed


def _credit(evidence: Evidence) -> Iterator[tuple[Value, ...]]:
    table, runs = evidence.table("credit"), trained(evidence.results)
    names: dict[str, tuple[str, int | None]] = {run.condition: (run.condition, None) for run in runs}
    names |= {run.name: (run.condition, run.seed) for run in runs}
    for row in table.rows:
        name, part = row.label.split("/", 1)
        for what, column in _SHARES.items():
            yield "b", *names[name], part, what, table.cell(row.label, column).number


def _pairs(evidence: Evidence) -> Iterator[tuple[Value, ...]]:
    try:
        table = evidence.table("replay_pairs")
    except NoTableError:
        return
    facts = {cell: runs[0].facts for cell, runs in audited_cells(evidence.results).items()}
    for row in table.rows:
        place, pair = row.label.split("/", 1)
        facts_of_cell, cell = facts[place], table.cell(row.label, "Equivalent (%)")
        same = cell.number
        apart = None if same is None else 100.0 - same
        task, model = facts_of_cell.problem, Path(facts_of_cell.model).name
        yield "c", place, None, pair, "separated (%)", apart, task, model, cell.n


def _updates(evidence: Evidence) -> Iterator[tuple[Value, ...]]:
    """Yield steps in sequence and alone: cosine of adapter changes, and differences in withheld contexts."""
    try:
        table = evidence.table(UPDATES)
    except NoTableError:
        return
    for row in table.rows:
        place, pair = row.label.split(": ", 1)
        cell, variant = place.rsplit(", ", 1)
        if variant in (VARIANTS["fresh"], VARIANTS["history"]):
            steps = table.cell(row.label, STEPS).value
            task, model = cell.split(" ", 1)
            for what in _MEASURES:
                shown, names = table.cell(row.label, what), pair.replace(" – ", ", ")
                look = task, Path(model).name, shown.n
                yield "d", cell, None, names, what, shown.number, *look, steps


def _draw(figure: Figure, frame: CsvFrame) -> None:
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.1))
    first, second = top.subplots(1, 2)
    _draw_changes(first, frame.where(panel="a"))
    _draw_credit(second, frame.where(panel="b"))
    seeded = frame.where(panel="a")
    classes, credit = drawing.legend_marker("completions"), drawing.legend_marker("credit", "")
    note = drawing.seed_count(seeded)
    drawing.legend(top, seeded.names("condition"), classes, credit, note=note)
    pairs, *updates = bottom.subplots(1, 1 + len(_MEASURES))
    lower = CsvFrame(tuple(row for row in frame.rows if row["panel"] in "cd"))
    models = sorted(lower.names("model"))
    _draw_cells(pairs, frame.where(panel="c"), models, "the normalizer replay has not run")
    drawing.panel_title(pairs, "c", "Same records")
    pairs.set_xlabel("groups with other\nadvantages (%)")
    pairs.set_xlim(-4, 104)
    for axes, (what, name) in zip(updates, _MEASURES.items(), strict=True):
        head = axes is updates[0]
        own = frame.where(panel="d", what=what)
        absent = "no matched update has credit" if own.rows else "matched updates have not run"
        _draw_cells(axes, own, models, absent if head else "")
        axes.set_xlabel(name)
        axes.locator_params(axis="x", nbins=3)
        if not head or frame.where(panel="d").names("part") == frame.where(panel="c").names("part"):
            axes.tick_params(axis="y", labelleft=False)
    # The number of matched updates in sequence is that behind the filled markers.
    steps = _steps(frame.where(panel="d"))
    title = "Matched updates, single steps" if steps else "Matched updates"
    if steps[1:]:
        title = f"Matched updates: {steps[-1]} in sequence (open: single steps)"
    drawing.panel_title(updates[0], "d", title)
    looks = dict.fromkeys((row["style"], row["model"]) for row in lower.rows)
    handles = [_mark(task, model, models) for task, model in looks]
    bottom.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=1.2)


def _mark(task: str, model: str, models: Sequence[str]) -> Line2D:
    """Return a marker with the task's colour and the model's shape, the same in both panels."""
    hue = _TASK_COLORS.get(task, drawing.GREEN)
    shape = _MODEL_MARKERS[models.index(model) % len(_MODEL_MARKERS)]
    return Line2D([], [], color=hue, marker=shape, linestyle="none", markersize=3.5, label=f"{task} {model}")


def _remark(frame: CsvFrame) -> str:
    """The groups that each reward change moved, lowest to highest seed, and what panel d is made of."""
    parts = []
    for part, own in frame.where(panel="a").by("part"):
        ranges = []
        for name, same in own.by("condition"):
            low, high = (f"{value:.0f}" for value in (same.numbers().min(), same.numbers().max()))
            values = f"{low} %" if low == high else f"{low} to {high} %"
            ranges.append(f"{values} ({drawing.display_name(name)})")
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
        for offset, condition in zip(drawing.offsets(len(conditions), 0.5), conditions, strict=True):
            drawing.seed_points(axes, frame.where(part=part, condition=condition), place + offset, condition)
    axes.set_xticks(range(len(parts)), [name.replace(" ", "\n", 1) for name in parts])
    axes.set_ylabel("groups whose\nadvantages change (%)")
    axes.set_ylim(-5, 105)
    drawing.panel_title(axes, "a", "What the normalizer keeps")


def _draw_credit(axes: Axes, frame: CsvFrame) -> None:
    conditions, classes = frame.names("condition"), frame.names("part")
    for place, name in enumerate(classes):
        for offset, condition in zip(drawing.offsets(len(conditions), 0.55), conditions, strict=True):
            own, y = frame.where(part=name, condition=condition), place + offset
            hue = drawing.color(condition)
            prevalence, mass, enrichment = (own.where(what=what, seed="").number() for what in _SHARES)
            axes.plot((prevalence, mass), (y, y), color=hue, lw=0.8)
            axes.plot(prevalence, y, **drawing.points(condition), **drawing.HOLLOW)
            axes.plot(mass, y, **drawing.points(condition))
            if not np.isnan(enrichment):
                at: tuple[float, float] = (max(prevalence, mass), y)
                beside: dict[str, Any] = {"va": "center", "fontsize": 5.5}
                axes.annotate(f"×{enrichment:.2f}", at, (4, 0), textcoords="offset points", **beside)
    axes.set_yticks(
        range(len(classes)), [drawing.display_name(name).replace("-", "\n", 1) for name in classes]
    )
    axes.set_ylim(len(classes) - 0.5, -0.5)
    axes.set_xlabel("share (%)")
    drawing.panel_title(axes, "b", "Credit against base rate")


def _draw_cells(axes: Axes, frame: CsvFrame, models: Sequence[str], otherwise: str) -> None:
    """One line per pair of mappings, one marker per cell; fewer steps are open."""
    pairs, cells = frame.names("part"), frame.names("condition")
    if not frame.known().rows:
        drawing.empty_panel(axes, otherwise)
        return
    places = dict(zip(cells, drawing.offsets(len(cells), 0.65), strict=True))
    most = max(frame.names("steps"), key=lambda name: int(name or 0))
    for row in sorted(frame.rows, key=lambda row: row["steps"] == most):
        mark = _mark(row["style"], row["model"], models)
        mark.set_data([float(row["value"] or "nan")], [places[row["condition"]] + pairs.index(row["part"])])
        if row["steps"] != most:
            mark.set_markerfacecolor("white")
        axes.add_line(mark)
    axes.autoscale_view()
    names = [drawing.display_name(pair).replace(", ", ",\n", 1) for pair in pairs]
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
    _draw,
    (7.0, 5.6),
    ("reward_changes", "credit", "replay_pairs", UPDATES),
    remark=_remark,
)
