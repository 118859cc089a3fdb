"""Do rewarded responses come back word for word? (paper, supplement, Collapse and exact recurrence)

Hashes see exact replay only, no semantic or algorithmic likeness.
"""

import numpy as np
from numpy.typing import NDArray

from search_to_signal.analysis.aggregate import Parts, difference_cell, mean_cell, summarized
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import NoTableError, Table, percent_cell
from search_to_signal.numerics import Bools

HORIZON = 25
COLUMNS = (
    "Recurring (%)",
    "Recurring, positive (%)",
    "Recurring, not positive (%)",
    "Positive minus not positive (points)",
)


def next_occurrence(run: RecordedRun) -> NDArray[np.float64]:
    """(T, G): groups until the same response text occurs in a later group; infinite if never."""
    distance = np.full(run.batch.outcome.shape, np.inf)
    following: dict[str, int] = {}
    for t in reversed(range(len(run.groups))):
        texts = [record.response_sha256 for record in run.groups[t]]
        distance[t] = [following.get(text, np.inf) - t for text in texts]
        following.update(dict.fromkeys(texts, t))
    return distance


def recurrence_parts(run: RecordedRun, horizon: int = HORIZON) -> Parts:
    """COLUMNS of a run, over the groups that have ``horizon`` groups after them."""
    whole = max(len(run.groups) - horizon, 0)
    again: Bools = next_occurrence(run)[:whole] <= horizon
    origin = run.completions_of(0, whole)
    if run.advantages is None:
        positive = other = np.zeros_like(again)
    else:
        positive = run.advantages[:whole] > 0.0
        other = ~positive
    base = f"completions whose text recurs within {horizon} later groups / completions"
    up = percent_cell((again & positive).sum(), positive.sum(), f"{base} with positive advantage", origin)
    down = percent_cell((again & other).sum(), other.sum(), f"{base} without positive advantage", origin)
    return {"": (percent_cell(again.sum(), again.size, base, origin), up, down, difference_cell(up, down))}


def recurrence(results: Results) -> Table:
    """Exact recurrence by condition and run; raises NoTableError where runs are too short for it."""
    runs = results.cohort
    if all(len(run.groups) <= HORIZON for run in runs):
        raise NoTableError(f"no run of the cohort has more than {HORIZON} groups")
    note = (
        f"Within {HORIZON} later groups; groups nearer to a run's end are left out. Means of the seeds' "
        "shares ± sample standard deviation."
    )
    rows = summarized(runs, recurrence_parts, mean_cell)
    return Table("recurrence", "Exact recurrence", "cohort", COLUMNS, rows, "Condition", note)
