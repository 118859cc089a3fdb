"""The learner path: what the normalizer erases, what survives it, and whom it credits.

Paper, fig. signal-propagation: mechanism separation, no efficacy.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from search_to_signal.analysis.cells import NoTableError
from search_to_signal.analysis.claim_matrix import recorded_credit
from search_to_signal.analysis.credit_tables import credit_parts, trained
from search_to_signal.analysis.evidence import Evidence
from search_to_signal.analysis.figures.frame import Frame, Value, lines, value_of
from search_to_signal.analysis.figures.marks import dodged
from search_to_signal.analysis.figures.plot import Plot
from search_to_signal.analysis.figures.style import (
    BLACK,
    ORANGE,
    PURPLE,
    SKY,
    color,
    empty,
    key,
    letter,
    marker,
    scores,
    shown,
    sign,
    spread_out,
)
from search_to_signal.analysis.metrics import improves
from search_to_signal.analysis.replay_tables import audited_cells
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.normalizer import group_advantages
from search_to_signal.numerics import Floats

TOLERANCE = 1e-3
"""Advantages of a group that differ by less are equivalent to the learner (D21)."""

UPDATES = "matched_mappings"
COSINE, WITHHELD = "Cosine", "Withheld difference"
_STEP = ", one step"
_STYLES = ((BLACK, "o"), (ORANGE, "^"), (SKY, "s"), (PURPLE, "D"))

Change = Callable[[Floats, RecordedRun], Floats]
CHANGES: Mapping[str, Change] = {
    "shift": lambda rewards, run: rewards + np.nan_to_num(run.batch.frontier)[:, None],
    "times ten": lambda rewards, run: 10.0 * rewards,
    "improvers only": lambda rewards, run: np.where(improves(run.batch), rewards, 0.0),
    "cubed": lambda rewards, run: rewards**3,
}
"""What a construction may do to rewards, (T, G): the first two are of the group, the others are not."""


def changed_share(run: RecordedRun, change: Change) -> float:
    """Percent of a run's groups whose advantages a change of the recorded rewards moves by more than D21."""
    rewards, _ = recorded_credit(run)
    moved = np.abs(group_advantages(change(rewards, run)) - group_advantages(rewards)).max(axis=1)
    return 100.0 * float((moved > TOLERANCE).mean())


def signal_table(evidence: Evidence) -> str:
    """Panels a to d: condition (in c and d: the cell), seed, part, what, value; what has its own style."""
    rows = [*_changes(evidence.results), *_credit(evidence.results), *_pairs(evidence), *_updates(evidence)]
    return lines(("panel", "condition", "seed", "part", "what", "value", "style"), rows)


def _changes(results: Results) -> Iterator[tuple[Value, ...]]:
    for run in trained(results):
        for name, change in CHANGES.items():
            yield "a", run.condition, run.seed, name, "groups changed (%)", changed_share(run, change), ""


def _credit(results: Results) -> Iterator[tuple[Value, ...]]:
    for run in trained(results):
        for name, (_, prevalence, mass, enrichment, _) in credit_parts(run).items():
            for what, cell in (("prevalence", prevalence), ("mass", mass), ("enrichment", enrichment)):
                yield "b", run.condition, run.seed, name, what, value_of(cell), ""


def _pairs(evidence: Evidence) -> Iterator[tuple[Value, ...]]:
    try:
        table = evidence.table("replay_pairs")
    except NoTableError:
        return
    tasks = {cell: str(runs[0].config["problem"]) for cell, runs in audited_cells(evidence.results).items()}
    for row in table.rows:
        cell, pair = row.label.split("/", 1)
        same = value_of(table.cell(row.label, "Equivalent (%)"))
        yield "c", cell, None, pair, "separated (%)", None if same is None else 100.0 - same, tasks[cell]


def _updates(evidence: Evidence) -> Iterator[tuple[Value, ...]]:
    """Single steps of every cell: cosine of two adapter changes, and what withheld contexts notice."""
    try:
        table = evidence.table(UPDATES)
    except NoTableError:
        return
    for row in table.rows:
        place, pair = row.label.split(": ", 1)
        if place.endswith(_STEP):
            for what in (COSINE, WITHHELD):
                value, cell = value_of(table.cell(row.label, what)), place.removesuffix(_STEP)
                yield "d", cell, None, pair.replace(" – ", ", "), what, value, cell


def _draw(figure: Figure, frame: Frame) -> None:
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.1))
    first, second = top.subplots(1, 2)
    _draw_changes(first, frame.where(panel="a"))
    _draw_credit(second, frame.where(panel="b"))
    seeded = frame.where(panel="a")
    key(top, seeded.names("condition"), (sign("completions"), sign("credit", ""), scores(seeded)))
    pairs, cosine, withheld = bottom.subplots(1, 3)
    _draw_cells(pairs, frame.where(panel="c"), "the normalizer replay has not run")
    letter(pairs, "c", "Same records, two mappings")
    pairs.set_xlabel("groups told apart (%)")
    pairs.set_xlim(-4, 104)
    for axes, what, otherwise in ((cosine, COSINE, "matched updates have not run"), (withheld, WITHHELD, "")):
        _draw_cells(axes, frame.where(panel="d", what=what), otherwise)
        axes.set_xlabel(what.lower())
    _continue(withheld)
    letter(cosine, "d", "Matched updates")


def _continue(axes: Axes) -> None:
    """The rows and the legend of the panel to the left hold here, too."""
    axes.tick_params(axis="y", labelleft=False)
    if (legend := axes.get_legend()) is not None:
        legend.remove()


def _draw_changes(axes: Axes, frame: Frame) -> None:
    conditions, parts = frame.names("condition"), frame.names("part")
    for place, part in enumerate(parts):
        for offset, condition in zip(spread_out(len(conditions), 0.5), conditions, strict=True):
            dodged(axes, frame.where(part=part, condition=condition), place + offset, condition)
    axes.set_xticks(range(len(parts)), [name.replace(" ", "\n", 1) for name in parts])
    axes.set_ylabel("groups whose\nadvantages change (%)")
    axes.set_ylim(-5, 105)
    letter(axes, "a", "What the normalizer keeps")


def _draw_credit(axes: Axes, frame: Frame) -> None:
    conditions, classes = frame.names("condition"), frame.names("part")
    for place, name in enumerate(classes):
        for offset, condition in zip(spread_out(len(conditions), 0.55), conditions, strict=True):
            own, y, hue = frame.where(part=name, condition=condition), place + offset, color(condition)
            prevalence, mass = (own.where(what=what).mean() for what in ("prevalence", "mass"))
            axes.plot((prevalence, mass), (y, y), color=hue, lw=0.8)
            axes.plot(prevalence, y, marker(condition), color=hue, markerfacecolor="white", mew=0.8)
            axes.plot(mass, y, marker(condition), color=hue)
    axes.set_yticks(range(len(classes)), [shown(name).replace("-", "\n", 1) for name in classes])
    axes.set_ylim(len(classes) - 0.5, -0.5)
    axes.set_xlabel("share (%)")
    letter(axes, "b", "Credit against base rate")


def _draw_cells(axes: Axes, frame: Frame, otherwise: str) -> None:
    """One line per pair of mappings, one marker per cell of tasks and models, a legend entry per style."""
    pairs, cells, styles = frame.names("part"), frame.names("condition"), frame.names("style")
    if not pairs:
        empty(axes, otherwise)
        return
    places = dict(zip(cells, spread_out(len(cells), 0.65), strict=True))
    for style, (hue, shape) in zip(styles, cycle(_STYLES), strict=False):
        own = [
            (row, places[row["condition"]] + pairs.index(row["part"]))
            for row in frame.where(style=style).rows
        ]
        x, y = [float(row["value"] or "nan") for row, _ in own], [place for _, place in own]
        axes.plot(x, y, shape, color=hue, label=style, markersize=3.5)
    axes.set_yticks(range(len(pairs)), [shown(pair).replace(", ", ",\n", 1) for pair in pairs])
    axes.set_ylim(len(pairs) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=4)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.4, -0.28), ncols=2, handletextpad=0.1, columnspacing=0.8
    )


SIGNAL = Plot(
    "learner_path",
    "Learner-path audit",
    """(a) Share of groups whose advantages move by more than 0.001 when their recorded rewards are
    shifted by the group's frontier, multiplied by ten, set to zero for all but improvers, or cubed.
    Group standardization erases shifts and nearly erases scale; gating and spacing survive. Open
    markers are seeds, bars their means. (b) Prevalence of each candidate class (open) and its share of
    positive advantage mass (filled), mean over seeds. (c) Share of shared recorded groups in which two
    mappings give advantages that differ by more than 0.001; a marker is a cell, task and model, and its
    shape the task. (d) Single steps from one adapter on the same
    tokens, mean over groups: cosine of the two adapter changes, and the largest difference of
    log-probabilities on withheld contexts. This separates mechanisms; it shows no efficacy.""",
    signal_table,
    _draw,
    (7.0, 5.4),
    ("credit", "replay_pairs", UPDATES),
)
