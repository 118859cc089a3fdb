"""The proposal stream before and after a collapse (paper, supplement, Collapse and exact recurrence).

Observational: when a collapse comes depends on the trajectory before it.
"""

from collections.abc import Sequence

import numpy as np

from search_to_signal.analysis.aggregate import Cells, Parts, known_mean_cell, summarized, total_cell
from search_to_signal.analysis.cells import Cell, NoTableError, Table
from search_to_signal.analysis.measures import STREAM, Measure, stream_cells
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun

# The paper gives no width; ten groups stay well below its stagnation threshold of 25.
WIDTH = 10
COLUMNS = ("Collapses", "Before", "After", "Change")


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
    """COLUMNS of every measure of the proposal stream: means over the run's collapses."""
    found = windows([t for t, step in enumerate(run.steps) if step.collapsed], len(run.groups))
    events = run.steps_at([at for _, at, _ in found])
    count = Cell(len(found), formula="collapses with a group before them", origins=(events,))
    before = [_stream(run, start, at) for start, at, _ in found]
    after = [_stream(run, at, stop) for _, at, stop in found]
    parts = {}
    for m, measure in enumerate(STREAM):
        one, other = [row[m] for row in before], [row[m] for row in after]
        change = [y - x for x, y in zip(one, other, strict=True)]
        sides = ((one, "before"), (other, "after"), (change, "after minus before"))
        parts[measure.heading] = (count, *(_mean(values, measure, what, run) for values, what in sides))
    return parts


def collapses(results: Results) -> Table:
    """Collapse-centred windows by condition and run; raises NoTableError where nothing collapsed."""
    runs = results.cohort
    if not any(step.collapsed for run in runs for step in run.steps):
        raise NoTableError("no population of the cohort collapsed")
    note = f"Means over collapses of up to {WIDTH} groups on each side, then over the seeds that have any."
    rows = summarized(runs, collapse_parts, _combined)
    return Table("collapses", "Around collapses", "cohort", COLUMNS, rows, "Condition/measure", note)


def _combined(cells: Sequence[Cell]) -> Cell:
    return total_cell(cells) if isinstance(cells[0].value, int) else known_mean_cell(cells)


def _stream(run: RecordedRun, start: int, stop: int) -> list[float]:
    cells: Cells = stream_cells(run.batch.at(slice(start, stop)), run.completions_of(start, stop))
    return [float(cell.value) if isinstance(cell.value, int | float) else np.nan for cell in cells]


def _mean(values: Sequence[float], measure: Measure, what: str, run: RecordedRun) -> Cell:
    known = [value for value in values if not np.isnan(value)]
    formula = f"mean over collapses with a value of ({measure.formula}) {what} the collapse"
    value = float(np.mean(known)) if known else None
    return Cell(value, formula=formula, origins=(run.everything,), decimals=measure.decimals)
