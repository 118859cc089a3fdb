"""Which headline comparison keeps its direction under which group normalizer.

The rewards and components that a run recorded go through every normalizer; nothing is generated or trained
again, so this says what the learner would have been told, not what it would have become.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from search_to_signal.analysis.aggregate import count_above, label, mean_cell
from search_to_signal.analysis.cells import Cell, NoTableError, Row, Table
from search_to_signal.analysis.credit import CandidateClass, CreditCounts, credit_table, zero_advantage_share
from search_to_signal.analysis.credit_tables import run_counts, trained
from search_to_signal.analysis.paired import against
from search_to_signal.analysis.results import Results, Runs
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.normalizer import NORMALIZERS, Normalizer, advantages
from search_to_signal.numerics import Floats

Quantity = Callable[[CreditCounts], float | None]
COLUMNS = tuple(NORMALIZERS)


def _enrichment(name: CandidateClass) -> Quantity:
    return lambda counts: next(e.enrichment for e in credit_table(counts) if e.candidate_class is name)


def _mass(counts: CreditCounts) -> float | None:
    return next(
        e.mass_share for e in credit_table(counts) if e.candidate_class is CandidateClass.NON_IMPROVING
    )


QUANTITIES: Mapping[str, tuple[Quantity, float]] = {
    "enrichment of parent improvers": (_enrichment(CandidateClass.PARENT_IMPROVING), 1.0),
    "enrichment of frontier improvers": (_enrichment(CandidateClass.STRICT_FRONTIER), 1.0),
    "enrichment of valid non-improvers": (_enrichment(CandidateClass.NON_IMPROVING), 1.0),
    "credit mass of valid non-improvers": (_mass, 0.5),
}
"""Quantity of one run, and the value that the claim about it turns on."""


def recorded_credit(run: RecordedRun) -> tuple[Floats, dict[str, Floats]]:
    """(T, G) rewards and reward components, as recorded."""
    rewards = np.array([[record.reward for record in group] for group in run.groups], dtype=np.float64)
    parts = [[record.components or {} for record in group] for group in run.groups]
    names = list(parts[0][0])
    return rewards, {name: np.array([[part[name] for part in row] for row in parts]) for name in names}


def counts_under(run: RecordedRun, normalizer: Normalizer) -> CreditCounts:
    """Credit of a run had its rewards gone through this normalizer."""
    rewards, components = recorded_credit(run)
    return run_counts(run, advantages(normalizer, rewards, components))


def normalizer_values(results: Results) -> Table:
    """The quantities themselves, mean over seeds, by normalizer."""
    rows = [Row(name, tuple(map(mean_cell, columns))) for name, _, columns in _quantities(trained(results))]
    note = "Recorded rewards through every normalizer; mean ± sample standard deviation over seeds."
    return Table(
        "normalizer_values",
        "Credit by normalizer",
        "cohort",
        COLUMNS,
        tuple(rows),
        "Condition/quantity",
        note,
    )


def claim_matrix(results: Results) -> Table:
    """In how many seeds each quantity lies above the value that its claim turns on, by normalizer."""
    rows = [
        Row(f"{name} > {turn:g}", tuple(count_above(cells, turn) for cells in columns))
        for name, turn, columns in _quantities(trained(results))
    ]
    note = "Seeds in which it holds; a claim survives where the count stays that of the first column."
    return Table("claim_matrix", "Claims by normalizer", "cohort", COLUMNS, tuple(rows), "Claim", note)


def _quantities(runs: Runs) -> list[tuple[str, float, list[list[Cell]]]]:
    """(name, turning value, cells of every seed by normalizer) of every claim."""
    counts = {run.name: [counts_under(run, n) for n in NORMALIZERS.values()] for run in runs}
    conditions = list(dict.fromkeys(run.condition for run in runs))
    found = []
    for condition in conditions:
        same = [run for run in runs if run.condition == condition]
        for name, (quantity, turn) in QUANTITIES.items():
            columns = [
                [_cell(quantity(counts[run.name][i]), name, run) for run in same]
                for i in range(len(NORMALIZERS))
            ]
            found.append((label(condition, name), turn, columns))
    return found + _density(runs, counts)


def _density(
    runs: Runs, counts: Mapping[str, Sequence[CreditCounts]]
) -> list[tuple[str, float, list[list[Cell]]]]:
    """Share of groups without any advantage: each condition minus Native, seed by seed."""
    try:
        found = against(runs, "native")
    except NoTableError:
        return []
    return [
        (
            f"{comparison.name}/zero-advantage share",
            0.0,
            [
                [
                    _cell(_gap(counts[run.name][i], counts[native.name][i]), "zero share", run)
                    for run, native in comparison.pairs
                ]
                for i in range(len(NORMALIZERS))
            ],
        )
        for comparison in found
    ]


def _gap(first: CreditCounts, second: CreditCounts) -> float | None:
    one, other = zero_advantage_share(first), zero_advantage_share(second)
    return None if one is None or other is None else one - other


def _cell(value: float | None, what: str, run: RecordedRun) -> Cell:
    return Cell(value, formula=f"{what} under the normalizer", origins=(run.everything,), decimals=3)
