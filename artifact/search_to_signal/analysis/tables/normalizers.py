"""Which headline comparison keeps its direction under which group normalizer.

The rewards and components that a run recorded go through every normalizer; nothing is generated or trained
again, so this says what the learner would have been told, not what it would have become.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from search_to_signal.analysis.aggregate import combined_cell, count_above, label, seed_numbers
from search_to_signal.analysis.metrics.credit import (
    CandidateClass,
    ClassCredit,
    CreditCounts,
    credit_table,
    zero_advantage_share,
)
from search_to_signal.analysis.results import Results, Runs
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, NoTableError, Row, Table
from search_to_signal.analysis.tables.credit import OVER_SEEDS, enrichment_cell, run_counts, trained
from search_to_signal.analysis.tables.paired import against
from search_to_signal.normalizer import NORMALIZERS, Normalizer, advantages
from search_to_signal.numerics import Floats

COLUMNS = tuple(NORMALIZERS)


def _mass_cell(entry: ClassCredit) -> Cell:
    return Cell(entry.mass_share, formula="credit mass share", decimals=3)


QUANTITIES: Mapping[str, tuple[CandidateClass, Callable[[ClassCredit], Cell], float]] = {
    "enrichment of parent improvers": (CandidateClass.PARENT_IMPROVING, enrichment_cell, 1.0),
    "enrichment of frontier improvers": (CandidateClass.STRICT_FRONTIER, enrichment_cell, 1.0),
    "enrichment of valid non-improvers": (CandidateClass.NON_IMPROVING, enrichment_cell, 1.0),
    "credit mass of valid non-improvers": (CandidateClass.NON_IMPROVING, _mass_cell, 0.5),
}
"""Class, its quantity in one run, and the value that the claim about it turns on."""


@dataclass(frozen=True)
class Measured:
    """A quantity and the value that its claim turns on; cells by normalizer, then by (named) seed."""

    name: str
    turn: float
    seeds: tuple[str, ...]
    columns: tuple[tuple[Cell, ...], ...]


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
    """The quantities themselves by normalizer, over seeds and for every seed."""
    found = _quantities(trained(results))
    rows = [Row(one.name, tuple(map(combined_cell, one.columns))) for one in found]
    rows += [
        Row(seed, cells)
        for one in found
        for seed, cells in zip(one.seeds, zip(*one.columns, strict=True), strict=True)
    ]
    note = f"Recorded rewards through every normalizer. {OVER_SEEDS}"
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
    found = _quantities(trained(results))
    rows = [
        Row(f"{one.name} > {one.turn:g}", tuple(count_above(cells, one.turn) for cells in one.columns))
        for one in found
    ]
    note = (
        "Seeds in which it holds, strictly; a claim survives where the count stays that of the first column. "
        f"{seed_numbers(len(one.seeds) for one in found)}."
    )
    return Table("claim_matrix", "Claims by normalizer", "cohort", COLUMNS, tuple(rows), "Claim", note)


def _quantities(runs: Runs) -> list[Measured]:
    """Every claim's quantity of every condition, then the differences of signal density."""
    counts = {run.name: [counts_under(run, n) for n in NORMALIZERS.values()] for run in runs}
    found = []
    for condition in dict.fromkeys(run.condition for run in runs):
        same = [run for run in runs if run.condition == condition]
        for name, (candidate_class, quantity, turn) in QUANTITIES.items():
            columns = tuple(
                tuple(_placed(quantity(_entry(counts[run.name][i], candidate_class)), run) for run in same)
                for i in range(len(NORMALIZERS))
            )
            seeds = tuple(label(run.name, name) for run in same)
            found.append(Measured(label(condition, name), turn, seeds, columns))
    return found + _density(runs, counts)


def _entry(counts: CreditCounts, name: CandidateClass) -> ClassCredit:
    return next(entry for entry in credit_table(counts) if entry.candidate_class is name)


def _density(runs: Runs, counts: Mapping[str, Sequence[CreditCounts]]) -> list[Measured]:
    """Share of groups without any advantage: each condition minus Native, seed by seed."""
    try:
        comparisons = against(runs, "native")
    except NoTableError:
        return []
    what, found = "zero-advantage share", []
    for one in comparisons:
        columns = tuple(
            tuple(_placed(_gap(counts[a.name][i], counts[b.name][i]), a, b) for a, b in one.pairs)
            for i in range(len(NORMALIZERS))
        )
        seeds = tuple(label(one.of_seed(run.seed), what) for run, _ in one.pairs)
        found.append(Measured(label(one.name, what), 0.0, seeds, columns))
    return found


def _gap(first: CreditCounts, second: CreditCounts) -> Cell:
    one, other = zero_advantage_share(first), zero_advantage_share(second)
    value = None if one is None or other is None else one - other
    return Cell(value, formula="share of groups without any advantage, minus Native's", decimals=3)


def _placed(cell: Cell, *runs: RecordedRun) -> Cell:
    origins = tuple(run.everything for run in runs)
    return replace(cell, formula=f"{cell.formula} under the normalizer", origins=origins)
