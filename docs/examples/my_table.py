"""A table: how many tokens completions take, and how many are cut at the limit, by condition and run."""

import numpy as np

from search_to_signal.report.results import RecordedRun
from search_to_signal.report.tables.cells import Cells, number_cell, percent_cell, run_table


@run_table("Completion lengths", "Mean over seeds ± sample standard deviation.")
def lengths(run: RecordedRun) -> Cells:
    """Mean tokens of a completion, and the share that was cut; the records behind each."""
    tokens = [record.completion_tokens for group in run.groups for record in group]
    cut = np.array([[record.truncated for record in group] for group in run.groups])
    mean = float(np.mean(tokens))
    return {
        "Tokens": number_cell(mean, "mean tokens of a completion", run.all_completions),
        "Cut (%)": percent_cell(
            int(cut.sum()), cut.size, "cut completions / completions", run.completions(cut)
        ),
    }
