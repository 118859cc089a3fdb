"""A frozen system behind an API, matched in completions alone (paper, tab. api-reference).

A reference, no causal comparison: provider, model and grouping differ from the local runs.
"""

from search_to_signal.analysis.aggregate import Parts, mean_cell, summarized
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, Table
from search_to_signal.analysis.tables.measures import AUC, FINAL_BEST, STREAM

MEASURES = (*STREAM, FINAL_BEST, AUC)
COLUMNS = (*(measure.heading for measure in MEASURES), "Prompt tokens", "Completion tokens")


def api_cells(run: RecordedRun) -> Parts:
    """COLUMNS of one run; a prompt is counted once per request, hence once per completion."""
    records = [record for group in run.groups for record in group]
    tokens = {
        "prompt tokens": sum(record.prompt_tokens for record in records),
        "completion tokens": sum(record.completion_tokens for record in records),
    }
    counts = (
        Cell(float(number), formula=f"{what} over all requests", origins=(run.everything,), decimals=0)
        for what, number in tokens.items()
    )
    return {"": (*(measure.cell(run) for measure in MEASURES), *counts)}


def api(results: Results) -> Table:
    """Means over complete runs and every run; rows are repeated seeds, not competing methods."""
    rows = summarized(results.api, api_cells, mean_cell)
    note = "Frozen, one completion per request; mean ± sample standard deviation over seeds."
    return Table("api", "API system reference", "api", COLUMNS, rows, "Run", note)
