"""The proposal stream early, middle and late in a run (paper, fig. stage-dynamics)."""

from search_to_signal.analysis.aggregate import Parts, summarized
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Table
from search_to_signal.analysis.tables.measures import FINAL_BEST, STREAM, stream_cells

# The paper's groups 1-100, 101-250 and 251-500 of 500, as shares of a run of any length.
ENDS = (("early", 0.2), ("middle", 0.5), ("late", 1.0))
COLUMNS = (*(measure.heading for measure in STREAM), "Best at the end")


def stage_bounds(groups: int) -> dict[str, tuple[int, int]]:
    """First group and end of each stage, counted from 0; a stage may be empty in a very short run."""
    ends = [round(share * groups) for _, share in ENDS]
    return {
        name: bounds for (name, _), bounds in zip(ENDS, zip([0, *ends[:-1]], ends, strict=False), strict=True)
    }


def stage_parts(run: RecordedRun) -> Parts:
    """COLUMNS of each stage of a run."""
    parts = {}
    for name, (start, stop) in stage_bounds(len(run.groups)).items():
        origin = run.completions_of(start, stop)
        best = float(run.best[stop - 1]) if stop else None
        cells = stream_cells(run.batch.at(slice(start, stop)), origin)
        parts[name] = (*cells, FINAL_BEST.of(best, run.completions_of(0, stop)))
    return parts


def stages(results: Results) -> Table:
    """Stages by condition and run, of each condition's own contexts: no fixed-prompt evaluation."""
    note = (
        "Early, middle and late: the first 20 %, the next 30 % and the last 50 % of the groups. Means of the "
        "seeds' values ± sample standard deviation."
    )
    rows = summarized(results.cohort, stage_parts)
    return Table("stages", "Stage dynamics", "cohort", COLUMNS, rows, "Condition/stage", note)
