"""A table: how many tokens completions take, and how many are cut at the limit, by condition and run."""

import numpy as np

from search_to_signal.analysis.results import RecordedRun, Results
from search_to_signal.analysis.tables.cells import Cell, Parts, Table, percent_cell, summarized

COLUMNS = ("Tokens", "Cut (%)")


def length_cells(run: RecordedRun) -> Parts:
    """Mean tokens of a completion, and the share that was cut; the records behind each."""
    tokens = [record.completion_tokens for group in run.groups for record in group]
    cut = np.array([[record.truncated for record in group] for group in run.groups])
    mean = Cell(float(np.mean(tokens)), formula="mean tokens of a completion", origins=(run.all_completions,))
    share = percent_cell(int(cut.sum()), cut.size, "cut completions / completions", run.completions(cut))
    return {"": (mean, share)}


def lengths(results: Results) -> Table:
    """Completion lengths of the cohort."""
    note = "Mean over seeds ± sample standard deviation."
    rows = summarized(results.cohort, length_cells)
    return Table("lengths", "Completion lengths", "cohort", COLUMNS, rows, "Condition", note)
