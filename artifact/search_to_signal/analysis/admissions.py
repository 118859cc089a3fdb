"""Archive admission against immediate frontier improvement (paper, supplement, Population admission)."""

from search_to_signal.analysis.aggregate import Parts, summarized
from search_to_signal.analysis.metrics.search import beats_frontier
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, Table, percent_cell

COLUMNS = ("Admissions", "Beat the frontier", "Precision (%)", "Admitted (%)")


def admission_cells(run: RecordedRun) -> Parts:
    """Admissions, those of them that beat the frontier before their group, and the shares of both."""
    best = run.admitted & beats_frontier(run.batch)
    admitted, beat = int(run.admitted.sum()), int(best.sum())
    chosen = run.completions(run.admitted)
    return {
        "": (
            Cell(admitted, formula="completions taken into the archive", origins=(chosen,)),
            Cell(
                beat,
                formula="admissions better than the frontier before their group",
                origins=(run.completions(best),),
            ),
            percent_cell(beat, admitted, "admissions that beat the frontier / admissions", chosen),
            percent_cell(admitted, run.admitted.size, "admissions / completions", run.everything),
        )
    }


def admissions(results: Results) -> Table:
    """Admissions by condition and run: search memory, not credit and not discovery."""
    note = "Counts are sums over seeds; shares are means of the seeds' shares ± sample standard deviation."
    rows = summarized(results.cohort, admission_cells)
    return Table("admissions", "Archive admissions", "cohort", COLUMNS, rows, "Condition", note)
