"""How much of what was said is new: texts, prompts, parents, programs (paper, Metrics; programs are ours).

Texts are compared by hash. Programs are compared in canonical form, so that names, comments and layout do
not count; heldout.py compares what programs do.
"""

from collections.abc import Hashable, Sequence

from search_to_signal.analysis.aggregate import Parts, mean_cell, summarized
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, Table, percent_cell
from search_to_signal.analysis.tables.measures import PARENTS, PROMPTS, RESPONSES

COLUMNS = (
    RESPONSES.heading,
    PROMPTS.heading,
    PARENTS.heading,
    "Unique programs (%)",
    "Unique valid programs (%)",
    "Unique scores (%)",
)


def coverage_parts(run: RecordedRun) -> Parts:
    """COLUMNS of a run: distinct things per thing."""
    records = [record for group in run.groups for record in group]
    programs = [record.program_sha256 for record in records if record.program_sha256 is not None]
    valid = [record for record in records if record.score is not None]
    return {
        "": (
            *(measure.cell(run) for measure in (RESPONSES, PROMPTS, PARENTS)),
            _distinct(programs, "canonical programs / completions with a program", run),
            _distinct([r.program_sha256 for r in valid], "canonical programs / valid completions", run),
            _distinct([r.score for r in valid], "scores / valid completions", run),
        )
    }


def coverage(results: Results) -> Table:
    """Uniqueness by condition and run: proxies of coverage, none of them semantic diversity."""
    note = "Distinct things per hundred; mean ± sample standard deviation over seeds."
    rows = summarized(results.cohort, coverage_parts, mean_cell)
    return Table("coverage", "Coverage", "cohort", COLUMNS, rows, "Condition", note)


def _distinct(keys: Sequence[Hashable], what: str, run: RecordedRun) -> Cell:
    return percent_cell(len(set(keys)), len(keys), f"distinct {what}", run.everything)
