"""A final adapter in a fresh population without updates, against its live parent and against Frozen.

Paper, Checkpoint and Search-State Attribution; supplement, Live versus population-reset search.
"""

from collections.abc import Sequence

from search_to_signal.analysis.aggregate import summarized
from search_to_signal.analysis.comparable import at_one_horizon
from search_to_signal.analysis.results import Results, Runs
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import NoTableError, Table
from search_to_signal.analysis.tables.core import SEED_COLUMNS, seed_cells
from search_to_signal.analysis.tables.paired import (
    COLUMNS,
    DIRECTIONS,
    Comparison,
    against,
    few_seeds,
    measured,
    paired_rows,
    signs,
)
from search_to_signal.errors import RunDirectoryError


def restart_runs(results: Results) -> Runs:
    """The restarts, each held to its live parent: the same adapter, and no update since.

    Raises RunDirectoryError naming a restart without parent, of another adapter, or that was trained.
    """
    parents = {(run.condition, run.seed): run for run in results.cohort}
    for run in results.restart:
        parent = parents.get((run.condition, run.seed))
        if parent is None:
            raise RunDirectoryError(f"{run.path} has no live parent in the cohort: restore {run.name} there")
        if parent.manifest.final_adapter_sha256 != run.manifest.initial_adapter_sha256:
            raise RunDirectoryError(f"{run.path} did not start from the final adapter of {parent.path}")
        if any(step.training_tokens or step.adapter_sha256 for step in run.steps):
            raise RunDirectoryError(f"{run.path} has optimizer steps: a restart has none")
    return results.restart


def beside_live(results: Results) -> tuple[Runs, Runs]:
    """(restarts, live cohort) over one horizon; raises NoTableError where formal ones have several."""
    restarts = restart_runs(results)
    runs = at_one_horizon((*restarts, *results.cohort))
    return runs[: len(restarts)], runs[len(restarts) :]


def comparisons(results: Results) -> tuple[Comparison, ...]:
    """Restart minus Frozen and minus its live parent, per condition, and restarts minus Native's restart.

    Raises NoTableError as ``beside_live`` does.
    """
    runs, cohort = beside_live(results)
    live = {(run.condition, run.seed): run for run in cohort}
    found: list[Comparison] = []
    for condition in dict.fromkeys(run.condition for run in runs):
        same = [run for run in runs if run.condition == condition]
        for other in ("frozen", condition):
            pairs = tuple((r, live[other, r.seed]) for r in same if (other, r.seed) in live)
            if len(pairs) == len(same):
                found.append(Comparison(f"restart/{condition}", f"live/{other}", pairs))
    return (*found, *_between(runs))


def restart(results: Results) -> Table:
    """Every measure of the restarted searches, by condition and run."""
    columns = SEED_COLUMNS
    rows = summarized(restart_runs(results), lambda run: {"": seed_cells(run)})
    note = "Final adapter, fresh population, no update; mean ± sample standard deviation over seeds."
    return Table("restart", "Frozen restarts", "restart", columns, rows, "Condition", note)


def restart_paired(results: Results) -> Table:
    """Same-seed differences of restarts to Frozen, to their live parents, and to each other."""
    found = comparisons(results)
    rows = paired_rows(found, measured)
    note = "First minus second, seed by seed; layers are compared, never pooled."
    note = f"{note} {few_seeds(len(c.pairs) for c in found)}"
    return Table("restart_paired", "Restarts compared", "restart", COLUMNS, rows, "Comparison", note)


def restart_signs(results: Results) -> Table:
    """In how many seeds the restart is above, equal to and below what it is compared with."""
    found = comparisons(results)
    note = f"{DIRECTIONS} {few_seeds(len(c.pairs) for c in found)}"
    head, rows = "Comparison/direction", signs(found)
    return Table("restart_signs", "Directions of restarts", "restart", COLUMNS, rows, head, note)


def _between(runs: Sequence[RecordedRun]) -> list[Comparison]:
    try:
        found = against(runs, "native")
    except NoTableError:
        return []
    return [Comparison(f"restart/{c.first}", f"restart/{c.second}", c.pairs) for c in found]
