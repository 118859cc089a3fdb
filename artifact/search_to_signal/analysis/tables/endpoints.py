"""Live gains and restart gains by seed: does a better live endpoint come with a better generator?

Paper, Checkpoint and Search-State Attribution: what a restart gains over Frozen came with the checkpoint;
what the live run alone gains may be its population's.
"""

from collections.abc import Sequence
from statistics import mean

from search_to_signal.analysis.results import NoTableError, Origin, RecordedRun, Results
from search_to_signal.analysis.tables.cells import Cell, Row, Table
from search_to_signal.analysis.tables.paired import few_seeds, restarts_and_live
from search_to_signal.progress import counted
from search_to_signal.records.conditions import FROZEN

STATEMENT = "endpoint gains alone are no evidence of a better generator"
ENDPOINT_COLUMNS = (
    "Seeds",
    "Live minus frozen",
    "Restart minus frozen",
    "Live above frozen",
    "Of these the restart is not",
    "Statement",
)
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
        raise NoTableError("no restart has its live run and the frozen run of its seed beside it")
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


def endpoints(results: Results) -> Table:
    """Build the table of final-best gains of live runs and restarts over the frozen run of the seed."""
    rows = tuple(_row(condition, group) for condition, group in trios(results).items())
    sizes = [len(group) for group in trios(results).values()]
    note = (
        f'The statement is "{STATEMENT}": a seed whose live run ends above frozen, and whose final adapter '
        f"in a fresh population does not, is an instance of it. {few_seeds(sizes)}"
    )
    title = "Endpoint gains and generators"
    return Table("endpoints", title, "restart", ENDPOINT_COLUMNS, rows, "Condition", note)


def _row(condition: str, group: Sequence[Trio]) -> Row:
    gains = [tuple(float(run.best[-1] - frozen.best[-1]) for run in pair) for *pair, frozen in group]
    pairs = [(live, again) for live, again in gains]
    origins = tuple(run.all_completions for trio in group for run in trio)
    ahead = [again for live, again in pairs if live > 0]
    count, n = "seeds whose final best is above frozen's", len(group)
    return Row(
        condition,
        (
            Cell(n, n, "seeds", origins),
            _mean([live for live, _ in pairs], "live", origins),
            _mean([again for _, again in pairs], "restart", origins),
            Cell(len(ahead), n, f"live {count}", origins),
            Cell(sum(again <= 0 for again in ahead), n, "of these, restarts that are not", origins),
            Cell(verdict(pairs), n, "what these seeds say of the statement", origins),
        ),
    )


def _mean(gains: Sequence[float], of: str, origins: tuple[Origin, ...]) -> Cell:
    formula = f"mean over {counted(len(gains), 'seed')} of (final best of the {of} run minus that of frozen)"
    return Cell(mean(gains), len(gains), formula, origins)
