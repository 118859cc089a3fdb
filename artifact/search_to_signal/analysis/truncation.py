"""Online runs cut off at the number of evaluator calls that the frozen run of their seed made.

Paper, Live-Search Results: more valid completions mean more evaluator calls at equal groups. A completion
without rationale, code or function is none: the host never calls its evaluator on it (D04).
"""

import numpy as np
from numpy.typing import NDArray

from search_to_signal.analysis.aggregate import Parts, difference_cell, mean_cell, over_seeds
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, Row, Table
from search_to_signal.analysis.tables.measures import FINAL_BEST
from search_to_signal.analysis.tables.paired import against

COLUMNS = ("Evaluator calls", "Groups kept", "Final best", "Frozen final best", "Difference")


def calls_after(run: RecordedRun) -> NDArray[np.int64]:
    """(T,) evaluator calls up to and including each group: completions that reached the evaluator.

    A program that was evaluated before counts again: the host would have run it again.
    """
    return np.cumsum(run.batch.evaluated.sum(axis=1))


def truncated(online: RecordedRun, frozen: RecordedRun) -> Parts:
    """COLUMNS of one seed: whole groups only, as long as they need no more calls than Frozen made in all."""
    budget = int(calls_after(frozen)[-1])
    kept = int(np.searchsorted(calls_after(online), budget, side="right"))
    prefix = online.completions_of(0, kept)
    best = FINAL_BEST.of(float(online.best[kept - 1]) if kept else None, prefix)
    base = FINAL_BEST.cell(frozen)
    calls = "completions of Frozen that reached the evaluator"
    return {
        "": (
            Cell(float(budget), formula=calls, origins=(frozen.everything,), decimals=0),
            Cell(float(kept), formula="groups within these calls", origins=(prefix,), decimals=1),
            best,
            base,
            difference_cell(best, base),
        )
    }


def truncation(results: Results) -> Table:
    """Final best of every online run at the evaluator calls of the frozen run of its seed."""
    rows: list[Row] = []
    singles: list[Row] = []
    for comparison in against(results.cohort, "frozen"):
        seeds = [truncated(one, other) for one, other in comparison.pairs]
        rows += over_seeds(comparison.first, seeds, mean_cell)
        singles += [Row(one.name, s[""]) for (one, _), s in zip(comparison.pairs, seeds, strict=True)]
    note = "Online runs cut at Frozen's evaluator calls of the same seed; mean ± sample deviation over seeds."
    return Table(
        "truncation", "At equal evaluator calls", "cohort", COLUMNS, (*rows, *singles), "Condition", note
    )
