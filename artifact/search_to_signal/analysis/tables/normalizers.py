"""Credit that recorded groups would have had under another normalizer, or in smaller groups.

Nothing is generated or trained again: the tables show the learning signal that would have resulted, not its
effect on the learner. The paper names ties in groups of four as a limit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add

import numpy as np

from search_to_signal.analysis.metrics.positive_credit import (
    CandidateClass,
    ClassCredit,
    CreditCounts,
    count_credit,
    credit_table,
    zero_advantage_share,
)
from search_to_signal.analysis.results import NoTableError, RecordedRun, Results, Runs
from search_to_signal.analysis.tables.cells import (
    Cell,
    Cells,
    Combine,
    Parts,
    Row,
    Table,
    combined_cell,
    count_above,
    label,
    percent_cell,
    seed_numbers,
    summarized,
)
from search_to_signal.analysis.tables.learner_credit import (
    OVER_SEEDS,
    class_cells,
    enrichment_cell,
    recorded_credit,
    run_counts,
    trained,
)
from search_to_signal.analysis.tables.measures import compare_with
from search_to_signal.errors import ConfigError, MappingError
from search_to_signal.normalizer import (
    NORMALIZERS,
    Normalizer,
    advantages,
    advantages_by_group,
    find_normalizer,
)
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards import find_mapping
from search_to_signal.rewards.base import rewards_of
from search_to_signal.seeding import stream

COLUMNS = tuple(NORMALIZERS)


def _mass_cell(entry: ClassCredit) -> Cell:
    return Cell(entry.mass_share, formula="credit mass share", decimals=3)


QUANTITIES: Mapping[str, tuple[CandidateClass, Callable[[ClassCredit], Cell], float]] = {
    "enrichment of parent improvers": (CandidateClass.PARENT_IMPROVING, enrichment_cell, 1.0),
    "enrichment of frontier improvers": (CandidateClass.STRICT_FRONTIER, enrichment_cell, 1.0),
    "enrichment of valid non-improvers": (CandidateClass.NON_IMPROVING, enrichment_cell, 1.0),
    "credit mass of valid non-improvers": (CandidateClass.NON_IMPROVING, _mass_cell, 0.5),
}
"""Class, its quantity in one run, and the threshold of the claim about it."""


@dataclass(frozen=True)
class Quantity:
    """A quantity and the threshold of its claim; ``seeds`` are cells by normalizer, of every named seed."""

    name: str
    threshold: float
    seeds: Mapping[str, Cells]

    def over_seeds(self, name: str, combine: Combine) -> Row:
        return Row(name, tuple(map(combine, zip(*self.seeds.values(), strict=True))))


def counts_under(run: RecordedRun, normalizer: Normalizer) -> CreditCounts:
    """Count a run's credit if its rewards had been normalized by this normalizer."""
    rewards, components = recorded_credit(run)
    return run_counts(run, advantages(normalizer, rewards, components))


def normalizer_values(results: Results) -> Table:
    """The quantities themselves by normalizer, over seeds and for every seed."""
    values, head = results.once(quantities), "Condition/quantity"
    rows = [quantity.over_seeds(quantity.name, combined_cell) for quantity in values]
    rows += [Row(*seed) for quantity in values for seed in quantity.seeds.items()]
    note = f"Recorded rewards through every normalizer. {OVER_SEEDS}"
    return Table("normalizer_values", "Credit by normalizer", "cohort", COLUMNS, tuple(rows), head, note)


def claim_matrix(results: Results) -> Table:
    """Build the table of seeds in which each quantity exceeds its claim's threshold, by normalizer."""
    values = results.once(quantities)
    rows = tuple(
        quantity.over_seeds(
            f"{quantity.name} > {quantity.threshold:g}", partial(count_above, threshold=quantity.threshold)
        )
        for quantity in values
    )
    note = (
        "Seeds in which it holds, strictly; a claim survives where the count stays that of the first column. "
        f"{seed_numbers(len(quantity.seeds) for quantity in values)}."
    )
    return Table("claim_matrix", "Claims by normalizer", "cohort", COLUMNS, rows, "Claim", note)


def quantities(results: Results) -> list[Quantity]:
    """Every claim's quantity of every condition, then the differences of signal density."""
    runs = trained(results)
    counts = {run.name: [counts_under(run, n) for n in NORMALIZERS.values()] for run in runs}
    values = []
    for condition in dict.fromkeys(run.condition for run in runs):
        same = [run for run in runs if run.condition == condition]
        for name, (candidate_class, cell_of, threshold) in QUANTITIES.items():
            seeds = {
                label(run.name, name): tuple(
                    _with_origins(cell_of(_entry(counted, candidate_class)), run)
                    for counted in counts[run.name]
                )
                for run in same
            }
            values.append(Quantity(label(condition, name), threshold, seeds))
    return values + _density(runs, counts)


def _entry(counts: CreditCounts, name: CandidateClass) -> ClassCredit:
    return next(entry for entry in credit_table(counts) if entry.candidate_class is name)


def _density(runs: Runs, counts: Mapping[str, Sequence[CreditCounts]]) -> list[Quantity]:
    """Share of groups without any advantage: each condition minus Native, seed by seed."""
    what, values = "zero-advantage share", []
    for comparison in compare_with(runs, "native"):
        seeds = {
            label(comparison.of_seed(a.seed), what): tuple(
                _with_origins(gap, a, b) for gap in map(_gap, counts[a.name], counts[b.name])
            )
            for a, b in comparison.pairs
        }
        values.append(Quantity(label(comparison.name, what), 0.0, seeds))
    return values


def _gap(first: CreditCounts, second: CreditCounts) -> Cell:
    share, base = zero_advantage_share(first), zero_advantage_share(second)
    value = None if share is None or base is None else share - base
    return Cell(value, formula="share of groups without any advantage, minus Native's", decimals=3)


def _with_origins(cell: Cell, *runs: RecordedRun) -> Cell:
    origins = tuple(run.all_completions for run in runs)
    return replace(cell, formula=f"{cell.formula} under the normalizer", origins=origins)


SUBSAMPLES = 8
_SIZE_CLASSES = (
    CandidateClass.NON_IMPROVING,
    CandidateClass.PARENT_IMPROVING,
    CandidateClass.STRICT_FRONTIER,
)
SIZE_COLUMNS = (
    "Zero advantage (%)",
    "Credit mass valid_non_improving (%)",
    *(f"Enrichment {name.value}" for name in _SIZE_CLASSES),
)
_BY_COMPLETION = ("outcome", "score", "archive_gap", "exposure", "response", "matches_base_code")


def subsampled(batch: GroupBatch, size: int, rng: np.random.Generator) -> GroupBatch:
    """The same groups with ``size`` of their completions, drawn without replacement, in their order."""
    order = rng.permuted(np.tile(np.arange(batch.outcome.shape[1]), (len(batch.outcome), 1)), axis=1)
    chosen = np.sort(order[:, :size], axis=1)
    parts = {name: np.take_along_axis(getattr(batch, name), chosen, axis=1) for name in _BY_COMPLETION}
    return replace(batch, **parts)


def size_parts(run: RecordedRun) -> Parts:
    """SIZE_COLUMNS of a run for every group size from 2 to its own."""
    return {f"G={size}": _size_cells(run, size) for size in range(2, run.batch.outcome.shape[1] + 1)}


def group_size(results: Results) -> Table:
    """Zero-advantage share and credit by class as groups shrink, by each run's mapping and normalizer."""
    note = f"Recorded groups, {SUBSAMPLES} subsamples each below full size. {OVER_SEEDS}"
    try:
        rows = summarized(trained(results), size_parts)
    except (ConfigError, MappingError) as error:
        raise NoTableError(str(error)) from error
    return Table("group_size", "Group size", "cohort", SIZE_COLUMNS, rows, "Condition/size", note)


def _size_cells(run: RecordedRun, size: int) -> Cells:
    mapping, normalizer = find_mapping(run.facts.mapping), find_normalizer(run.facts.normalizer)
    rng = stream(run.seed, "group_size", size)
    whole = size == run.batch.outcome.shape[1]
    samples = [run.batch] if whole else [subsampled(run.batch, size, rng) for _ in range(SUBSAMPLES)]
    rewards = [rewards_of(mapping, sample) for sample in samples]
    counts = [
        count_credit(sample, advantages_by_group(normalizer, r.reward, r.components))
        for sample, r in zip(samples, rewards, strict=True)
    ]
    total = reduce(add, counts)
    origin = run.all_completions
    rows = {e.candidate_class: class_cells(total, e, origin) for e in credit_table(total)}
    zero = percent_cell(total.zero_groups, total.groups, "groups without any advantage / groups", origin)
    return (zero, rows[_SIZE_CLASSES[0]][2], *(rows[name][3] for name in _SIZE_CLASSES))
