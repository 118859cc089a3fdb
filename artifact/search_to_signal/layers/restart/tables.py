"""Restarts, compared with Frozen, with their live parents and with each other, seed by seed.

Paper, Checkpoint and Search-State Attribution; supplement, Live versus population-reset search.
"""

from collections.abc import Sequence
from statistics import mean

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.progress import counted
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.layers import RESTART
from search_to_signal.report.results import NoTableError, RecordedRun, Results, Runs
from search_to_signal.report.tables import measures
from search_to_signal.report.tables.cells import Cell, Cells, Noted, run_table, table
from search_to_signal.report.tables.core import few_seeds, paired_of, prompts_of, signs_of
from search_to_signal.report.tables.measures import RunComparison

prompts = prompts_of(RESTART)


def restart_runs(results: Results) -> Runs:
    """Return the restarts, checked against their live parents: the same adapter, and no update since.

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


def restarts_and_live(results: Results) -> tuple[Runs, Runs]:
    """(restarts, live cohort) over one horizon; raises NoTableError where formal ones have several."""
    restarts = restart_runs(results)
    runs = measures.at_one_horizon((*restarts, *results.cohort))
    return runs[: len(restarts)], runs[len(restarts) :]


def restart_comparisons(results: Results) -> tuple[RunComparison, ...]:
    """Restart minus Frozen and minus its live parent, per condition, and restarts minus Native's restart.

    Raises NoTableError as ``restarts_and_live`` does.
    """
    runs, cohort = restarts_and_live(results)
    live = {(run.condition, run.seed): run for run in cohort}
    to_references: list[RunComparison] = []
    for condition in dict.fromkeys(run.condition for run in runs):
        same = [run for run in runs if run.condition == condition]
        for other in (FROZEN, condition):
            pairs = tuple((r, live[other, r.seed]) for r in same if (other, r.seed) in live)
            if len(pairs) == len(same):
                to_references.append(RunComparison(f"restart/{condition}", f"live/{other}", pairs))
    between = (
        RunComparison(f"restart/{c.first}", f"restart/{c.second}", c.pairs)
        for c in measures.compare_with(runs, "native")
    )
    return (*to_references, *between)


@run_table(
    "Frozen restarts",
    "Final adapter, fresh population, no update; mean ± sample standard deviation over seeds.",
    layer=RESTART,
    runs=restart_runs,
)
def restart(run: RecordedRun) -> Cells:
    """Every measure of the restarted searches."""
    return measures.seed_cells(run)


@table("Restarts compared", layer=RESTART, label="Comparison")
def restart_paired(results: Results) -> Noted:
    """Same-seed differences of restarts to Frozen, to their live parents, and to each other."""
    note = "First minus second, seed by seed; layers are compared, never pooled."
    return paired_of(results.once(restart_comparisons), note)


@table("Directions of restarts", layer=RESTART, label="Comparison/direction")
def restart_signs(results: Results) -> Noted:
    """In how many seeds the restart is above, equal to and below what it is compared with."""
    return signs_of(results.once(restart_comparisons))


STATEMENT = "a better endpoint does not show a better generator"
Trio = tuple[RecordedRun, RecordedRun, RecordedRun]


def trios(results: Results) -> dict[str, list[Trio]]:
    """Return (live, restart, frozen) runs of one seed, by condition; raises NoTableError without any."""
    again, cohort = restarts_and_live(results)
    live = {(run.condition, run.seed): run for run in cohort}
    by_condition: dict[str, list[Trio]] = {}
    for run in again:
        parent, frozen = live.get((run.condition, run.seed)), live.get((FROZEN, run.seed))
        if parent is not None and frozen is not None:
            by_condition.setdefault(run.condition, []).append((parent, run, frozen))
    if not by_condition:
        raise NoTableError("no restart has both its live run and the frozen run of its seed")
    return by_condition


def verdict(gains: Sequence[tuple[float, float]]) -> str:
    """Return the verdict on STATEMENT from (live, restart) gains over frozen."""
    ahead = [again for live, again in gains if live > 0]
    lost = sum(again <= 0 for again in ahead)
    if not ahead:
        return "not tested: no live run ended above frozen"
    if lost:
        return f"holds: {lost} of {len(ahead)} gains are not the checkpoint's alone"
    return f"no counterexample in {len(ahead)}: every restart is above frozen, too"


@table("Endpoint gains and generators", layer=RESTART)
def endpoints(results: Results) -> Noted:
    """Final-best gains of live runs and restarts over the frozen run of the seed.

    What a restart gains over Frozen came with the checkpoint; what the live run alone gains may be its
    population's (paper, Checkpoint and Search-State Attribution).
    """
    groups = trios(results)
    note = (
        f'The statement is "{STATEMENT}": a seed whose live run ends above frozen, and whose final adapter '
        f"in a fresh population does not, is an instance of it. {few_seeds(map(len, groups.values()))}"
    )
    return Noted([(condition, _endpoint_cells(group)) for condition, group in groups.items()], note)


def _endpoint_cells(group: Sequence[Trio]) -> Cells:
    gains = [
        (float(live.best[-1] - frozen.best[-1]), float(again.best[-1] - frozen.best[-1]))
        for live, again, frozen in group
    ]
    origins, n = tuple(run.all_completions for trio in group for run in trio), len(group)
    ahead = [again for live, again in gains if live > 0]
    lost = sum(again <= 0 for again in ahead)

    def average(values: Sequence[float], of: str) -> Cell:
        formula = f"mean over {counted(n, 'seed')} of (final best of the {of} run minus that of frozen)"
        return Cell(mean(values), n, formula, origins)

    return {
        "Seeds": Cell(n, n, "seeds", origins),
        "Live minus frozen": average([live for live, _ in gains], "live"),
        "Restart minus frozen": average([again for _, again in gains], "restart"),
        "Live above frozen": Cell(len(ahead), n, "live seeds whose final best is above frozen's", origins),
        "Of these the restart is not": Cell(lost, n, "of these, restarts that are not", origins),
        "Statement": Cell(verdict(gains), n, "what these seeds say of the statement", origins),
    }
