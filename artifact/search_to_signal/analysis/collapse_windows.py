"""The proposal stream before and after a collapse (paper, supplement, Collapse and exact recurrence).

Observational: when a collapse comes depends on the trajectory before it.
"""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from search_to_signal.analysis.aggregate import (
    Cells,
    Parts,
    known_mean_cell,
    seed_numbers,
    summarized,
    total_cell,
)
from search_to_signal.analysis.results import Results, Runs
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, NoTableError, Table
from search_to_signal.analysis.tables.measures import STREAM, Measure, stream_cells
from search_to_signal.numerics import Floats

# The paper gives no width; ten groups stay well below its stagnation threshold of 25.
WIDTH = 10
COLUMNS = ("Seeds", "Collapses", "No window", "Cut windows", "Windows", "Before", "After", "Change")


def windows(collapses: Sequence[int], groups: int, width: int = WIDTH) -> list[tuple[int, int, int]]:
    """(start, collapse, stop) per collapse: up to ``width`` groups on each side, counted from 0.

    A window reaches neither beyond the run nor into the next collapse's population, so that "before" and
    "after" are one population each. A collapse without a group before it has no window.
    """
    edges = [0, *collapses, groups]
    return [
        (max(before, at - width), at, min(after, at + width))
        for before, at, after in zip(edges[:-2], edges[1:-1], edges[2:], strict=True)
        if at > 0
    ]


def collapse_parts(run: RecordedRun) -> Parts:
    """COLUMNS of every measure of the proposal stream: means over windows with a value on both sides."""
    events = [t for t, step in enumerate(run.steps) if step.collapsed]
    found = windows(events, len(run.groups))
    bare = sorted(set(events) - {at for _, at, _ in found})
    cut = [at for start, at, stop in found if min(at - start, stop - at) < WIDTH]
    counts = tuple(
        Cell(len(steps), formula=formula, origins=(run.steps_at(steps),))
        for steps, formula in (
            (events, "collapses"),
            (bare, "collapses without a group before them"),
            (cut, f"windows with a side of under {WIDTH} groups"),
        )
    )
    before = np.array([_stream(run, start, at) for start, at, _ in found]).reshape(-1, len(STREAM))
    after = np.array([_stream(run, at, stop) for _, at, stop in found]).reshape(-1, len(STREAM))
    return {
        measure.heading: _measured(run, measure, counts, before[:, m], after[:, m])
        for m, measure in enumerate(STREAM)
    }


def _measured(run: RecordedRun, measure: Measure, counts: Cells, before: Floats, after: Floats) -> Cells:
    """COLUMNS of one measure; before and after: (windows,), NaN where a side has no value."""
    both = ~np.isnan(before) & ~np.isnan(after)
    sides = ((before, "before"), (after, "after"), (after - before, "after minus before"))
    origins = (run.everything,)
    return (
        Cell(int(both.any()), formula="runs with such a window", origins=origins),
        *counts,
        Cell(int(both.sum()), formula="windows with a value on both sides", origins=origins),
        *(_mean(values[both], measure, what, run) for values, what in sides),
    )


def collapses(results: Results) -> Table:
    """Collapse-centred windows by condition and run; raises NoTableError where nothing collapsed."""
    runs = results.cohort
    if not any(step.collapsed for run in runs for step in run.steps):
        raise NoTableError("no population of the cohort collapsed")
    note = (
        f"A window has up to {WIDTH} groups on each side of a collapse; it is cut where run or population "
        "end sooner, and missing without a group before. Means over the windows with a value on both sides, "
        f"then over the seeds with any, of {seed_numbers(_seeds(runs))}; counts are sums."
    )
    rows = summarized(runs, collapse_parts, _combined)
    return Table("collapses", "Around collapses", "cohort", COLUMNS, rows, "Condition/measure", note)


def _combined(cells: Sequence[Cell]) -> Cell:
    return total_cell(cells) if isinstance(cells[0].value, int) else known_mean_cell(cells)


def _seeds(runs: Runs) -> list[int]:
    return [len(list(members)) for _, members in groupby(runs, key=lambda run: run.condition)]


def _stream(run: RecordedRun, start: int, stop: int) -> list[float]:
    cells: Cells = stream_cells(run.batch.at(slice(start, stop)), run.completions_of(start, stop))
    return [float(cell.value) if isinstance(cell.value, int | float) else np.nan for cell in cells]


def _mean(values: Floats, measure: Measure, what: str, run: RecordedRun) -> Cell:
    formula = f"mean over windows with a value on both sides of ({measure.formula}) {what} the collapse"
    value = float(values.mean()) if len(values) else None
    return Cell(value, formula=formula, origins=(run.everything,), decimals=measure.decimals)
