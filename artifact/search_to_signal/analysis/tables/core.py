"""The core results, over seeds and run by run (paper, tables core-results and core-seeds)."""

from collections.abc import Sequence

from search_to_signal.analysis.aggregate import condition_rows, mean_cell, seed_rows
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, Table
from search_to_signal.analysis.tables.measures import CORE, FRONTIER, Measure

SEED_COLUMNS = (*(measure.heading for measure in (*CORE, FRONTIER)), "Training tokens")


def core_results(results: Results) -> Table:
    """Final best, AUC, validity, valid-only performance and improve yield, over seeds."""
    runs = results.cohort
    note = f"Mean ± sample standard deviation over {seeds(runs)} seeds; higher is better."
    columns = tuple(measure.heading for measure in CORE)
    rows = condition_rows(runs, lambda run: {"": measured(run, CORE)}, mean_cell)
    return Table("core_results", "Core results", "cohort", columns, rows, "Condition", note)


def core_seeds(results: Results) -> Table:
    """Every run of the live cohort by itself, with its strict-frontier yield and its training tokens."""
    rows = seed_rows(results.cohort, lambda run: {"": seed_cells(run)})
    note = "One run each; higher is better."
    return Table("core_seeds", "Core results by seed", "cohort", SEED_COLUMNS, rows, "Run", note)


def measured(run: RecordedRun, measures: Sequence[Measure]) -> tuple[Cell, ...]:
    """The cells of one run."""
    return tuple(measure.cell(run) for measure in measures)


def seed_cells(run: RecordedRun) -> tuple[Cell, ...]:
    """The cells of SEED_COLUMNS."""
    return (*measured(run, (*CORE, FRONTIER)), training_tokens(run))


def training_tokens(run: RecordedRun) -> Cell:
    """Tokens that entered the loss, over all steps."""
    total = sum(step.training_tokens for step in run.steps)
    return Cell(total, formula="sum of training tokens over steps", origins=(run.every_step,))


def seeds(runs: Sequence[RecordedRun]) -> int:
    """How many seeds every condition of a cohort has."""
    return len({run.seed for run in runs})
