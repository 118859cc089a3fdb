"""Frozen search through an endpoint (paper, tab. api-reference)."""

from search_to_signal.records.layers import API
from search_to_signal.report.results import RecordedRun
from search_to_signal.report.tables import measures
from search_to_signal.report.tables.cells import Cells, mean_cell, number_cell, run_table


@run_table(
    "API system reference",
    "Frozen, one completion per request; mean ± sample standard deviation over seeds.",
    layer=API,
    label="Run",
    runs=lambda results: results.api,
    combine=mean_cell,
)
def api(run: RecordedRun) -> Cells:
    """A frozen system behind an API, matched in completions alone.

    A reference, no causal comparison: provider, model and grouping differ from the local runs. A prompt is
    counted once per request, hence once per completion.
    """
    records = [record for group in run.groups for record in group]
    tokens = {
        "Prompt tokens": sum(record.prompt_tokens for record in records),
        "Completion tokens": sum(record.completion_tokens for record in records),
    }
    counts = {
        what: number_cell(number, f"{what.lower()} over all requests", run.all_completions, decimals=0)
        for what, number in tokens.items()
    }
    return measures.measured(run, (*measures.STREAM, measures.FINAL_BEST, measures.AUC)) | counts
