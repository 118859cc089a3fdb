"""Learner credit by candidate class, signal density, and what of a reward reaches the learner.

Paper, Credit-Utility Alignment Analysis; fig. signal-propagation; supplement, Credit allocation and
base rates.
Credit follows from the advantages that the learner saw; that of controls, changed rewards, other normalizers
and smaller groups from recorded groups alone. Nothing is generated or trained again: such a table shows the
learning signal that would have resulted, not its effect on the learner.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add

import numpy as np

from search_to_signal.base.errors import ConfigError, MappingError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.seeding import stream
from search_to_signal.credit import find_mapping
from search_to_signal.credit.base import rewards_of
from search_to_signal.credit.normalizers import (
    NORMALIZERS,
    Normalizer,
    advantages,
    advantages_by_group,
    find_normalizer,
)
from search_to_signal.records.groups import GroupBatch
from search_to_signal.report.metrics import search
from search_to_signal.report.results import NoTableError, Origin, RecordedRun, Results, Runs
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
    Combine,
    Line,
    Noted,
    Parts,
    combined_cell,
    combined_cells,
    count_above,
    count_cell,
    label,
    number_cell,
    percent_cell,
    run_table,
    seed_numbers,
    share_cell,
    summarized,
    table,
)
from search_to_signal.report.tables.measures import compare_with

OVER_SEEDS = (
    "Over seeds enrichment is mean credit mass / mean prevalence (D29), everything else the mean of the "
    "seeds' values ± sample standard deviation."
)
ZERO_FORMULA = "groups without any advantage / groups"


def trained(results: Results) -> Runs:
    """Return the runs of the live cohort that have a learner; raises NoTableError without any."""
    runs = tuple(run for run in results.cohort if run.advantages is not None)
    if not runs:
        raise NoTableError("no run of the cohort has a learner, so none has credit")
    return runs


def run_counts(run: RecordedRun, advantages: Floats | None = None) -> search.CreditCounts:
    """Count a run's credit, by its recorded advantages or by others, (T, G)."""
    seen = run.advantages if advantages is None else advantages
    if seen is None:
        raise NoTableError(f"{run.path} has no learner, so it has no credit")
    return search.count_credit(run.batch, seen)


def enrichment_cell(entry: search.ClassCredit, *origins: Origin) -> Cell:
    """E_A = P_A / P_D of one run, with the terms that an aggregate over runs is made of (D29)."""
    share, prevalence = entry.mass_share, entry.prevalence
    terms = None if share is None or prevalence is None else (share, prevalence)
    return Cell(entry.enrichment, 1, "credit mass share / prevalence", origins, decimals=3, terms=terms)


def class_cells(counts: search.CreditCounts, entry: search.ClassCredit, origin: Origin) -> Cells:
    """The credit of one candidate class (paper, eq. positive-credit-mass)."""
    enrichment = enrichment_cell(entry, origin)
    of_mass = "positive advantage of the class / all positive advantage"
    of_class = "completions of the class with positive advantage / those of the class"
    of_all = "completions of the class / completions"
    return {
        "Candidates": count_cell(entry.candidates, "completions of the class", origin),
        "Prevalence (%)": percent_cell(entry.candidates, counts.completions, of_all, origin),
        "Credit mass (%)": share_cell(entry.mass_share, of_mass, origin),
        "Enrichment": enrichment,
        "Enrichment by seed": replace(enrichment, value=enrichment.text(), terms=None),
        "Mean of seeds' enrichments": replace(enrichment, terms=None),
        "Positive (%)": share_cell(entry.positive_rate, of_class, origin),
    }


@run_table(
    "Credit by class",
    f"Exclusive classes (D18). Counts are sums over seeds. {OVER_SEEDS} Enrichment times prevalence "
    "adds up to 100 % over classes; with the mean of the seeds' enrichments it need not.",
    label="Condition/class",
    runs=trained,
)
def credit(run: RecordedRun) -> Parts:
    """Prevalence, positive credit mass, enrichment and positive rate of every class."""
    counts = run_counts(run)
    entries = search.credit_table(counts)
    return {entry.candidate_class.value: class_cells(counts, entry, run.all_completions) for entry in entries}


@run_table(
    "Signal density",
    "Shares of groups: means of the seeds' shares ± sample standard deviation.",
    runs=trained,
)
def signal(run: RecordedRun) -> Cells:
    """Groups without signal, and groups with credit but no improvement."""
    counts, origin = run_counts(run), run.all_completions
    zero = "groups with no advantage at all / groups"
    valid = "groups without improver that give a valid non-improver positive advantage / groups"
    anyone = "groups without improver that give anyone positive advantage / groups without improver"
    idle, credited = counts.non_improving_groups, counts.credited_groups
    credited_valid = counts.credited_valid_groups
    return {
        "Groups": count_cell(counts.groups, "groups", origin),
        "Zero advantage (%)": percent_cell(counts.zero_groups, counts.groups, zero, origin),
        "Credit without improver (%)": percent_cell(credited_valid, counts.groups, valid, origin),
        "Credited of groups without improver (%)": percent_cell(credited, idle, anyone, origin),
    }


def recorded_credit(run: RecordedRun) -> tuple[Floats, dict[str, Floats]]:
    """(T, G) rewards and reward components, as recorded."""
    rewards = np.array([[record.reward for record in group] for group in run.groups], dtype=np.float64)
    parts = [[record.components or {} for record in group] for group in run.groups]
    names = list(parts[0][0])
    return rewards, {name: np.array([[part[name] for part in row] for row in parts]) for name in names}


SHUFFLES = 20
CONTROLS = ("recorded", "within", "across", "constant")


def controlled_rewards(rewards: Floats, control: str, seed: int) -> Iterator[Floats]:
    """Yield the rewards of a control, (T, G) each: SHUFFLES shuffles, or one for a deterministic control."""
    rng = stream(seed, "controls", control)
    if control == "recorded":
        yield rewards
    elif control == "constant":
        yield np.zeros_like(rewards)
    else:
        for _ in range(SHUFFLES):
            flat = rng.permuted(rewards, axis=1 if control == "within" else None)
            yield flat.reshape(rewards.shape)


@run_table(
    "Reward controls",
    f"Shuffled rows count {SHUFFLES} shuffles of a run together. {OVER_SEEDS}",
    label="Condition/rewards",
    runs=trained,
)
def controls(run: RecordedRun) -> Parts:
    """Enrichment under meaningless rewards, which separates mapping from group effects.

    ``within`` shuffles rewards inside each group. Flat groups stay flat, and improvers stand in groups that
    are not flat, so even a meaningless order inside groups enriches them: that part is no merit of the order.
    ``across`` shuffles over the run, which leaves an enrichment of about 1; ``constant`` gives no credit.
    """
    (rewards, _), parts = recorded_credit(run), dict[str, Cells]()
    for control in CONTROLS:
        drawn = controlled_rewards(rewards, control, run.seed)
        draws = [run_counts(run, run.normalized(changed)) for changed in drawn]
        total, origin = reduce(add, draws), run.all_completions
        mass = number_cell(total.total_mass / len(draws), "sum of positive advantages", origin, decimals=1)
        enrichments = {
            f"Enrichment {entry.candidate_class.value}": enrichment_cell(entry, origin)
            for entry in search.credit_table(total)
        }
        zero = percent_cell(total.zero_groups, total.groups, ZERO_FORMULA, origin)
        parts[control] = {**enrichments, "Zero advantage (%)": zero, "Credit mass": mass}
    return parts


TOLERANCE = 1e-3
"""Advantages of a group that differ by less are equivalent to the learner (D21)."""

CHANGES: Mapping[str, Callable[[Floats, RecordedRun], Floats]] = {
    "shift": lambda rewards, run: rewards + np.nan_to_num(run.batch.frontier)[:, None],
    "times ten": lambda rewards, run: 10.0 * rewards,
    "improvers only": lambda rewards, run: np.where(search.improves(run.batch), rewards, 0.0),
    "cubed": lambda rewards, run: rewards**3,
}
"""Changes of rewards (T, G): the first two act on whole groups, the others on single completions."""

CHANGED = {name: f"{name.capitalize()} (%)" for name in CHANGES}
"""Their columns."""


@run_table(
    "Changed rewards",
    f"Groups with an advantage that moves by more than {TOLERANCE:g} (D21): means of the seeds' shares "
    "± sample standard deviation. Shift: the group's frontier is added; improvers only: every other "
    "reward is zero.",
    runs=trained,
)
def reward_changes(run: RecordedRun) -> Cells:
    """Shares of groups whose advantages move when recorded rewards are shifted, scaled, gated or cubed."""
    (rewards, _), groups = recorded_credit(run), len(run.groups)
    cells = {}
    for name, change in CHANGES.items():
        moved = np.abs(run.normalized(change(rewards, run)) - run.normalized(rewards)).max(axis=1)
        number, formula = int((moved > TOLERANCE).sum()), f"groups that {name} moves / groups"
        cells[CHANGED[name]] = percent_cell(number, groups, formula, run.all_completions)
    return cells


QUANTITIES: Mapping[str, tuple[search.CandidateClass, Callable[[search.ClassCredit], Cell], float]] = {
    "enrichment of parent improvers": (search.CandidateClass.PARENT_IMPROVING, enrichment_cell, 1.0),
    "enrichment of frontier improvers": (search.CandidateClass.STRICT_FRONTIER, enrichment_cell, 1.0),
    "enrichment of valid non-improvers": (search.CandidateClass.NON_IMPROVING, enrichment_cell, 1.0),
    "credit mass of valid non-improvers": (
        search.CandidateClass.NON_IMPROVING,
        lambda entry: Cell(entry.mass_share, formula="credit mass share", decimals=3),
        0.5,
    ),
}
"""Class, its quantity in one run, and the threshold of the claim about it."""


@dataclass(frozen=True)
class Quantity:
    """A quantity and the threshold of its claim; ``seeds`` are cells by normalizer, of every named seed."""

    name: str
    threshold: float
    seeds: Mapping[str, Cells]

    def over_seeds(self, combine: Combine) -> Cells:
        return combined_cells(list(self.seeds.values()), combine)


def counts_under(run: RecordedRun, normalizer: Normalizer) -> search.CreditCounts:
    """Count a run's credit if its rewards had been normalized by this normalizer."""
    rewards, components = recorded_credit(run)
    return run_counts(run, advantages(normalizer, rewards, components))


@table(
    "Credit by normalizer",
    f"Recorded rewards through every normalizer. {OVER_SEEDS}",
    label="Condition/quantity",
)
def normalizer_values(results: Results) -> list[Line]:
    """The quantities themselves by normalizer, over seeds and for every seed."""
    values = results.once(quantities)
    over = [(quantity.name, quantity.over_seeds(combined_cell)) for quantity in values]
    return over + [seed for quantity in values for seed in quantity.seeds.items()]


@table("Claims by normalizer", label="Claim")
def claim_matrix(results: Results) -> Noted:
    """Seeds in which each quantity exceeds its claim's threshold, by normalizer."""
    values = results.once(quantities)
    lines = []
    for quantity in values:
        above = partial(count_above, threshold=quantity.threshold)
        lines.append((f"{quantity.name} > {quantity.threshold:g}", quantity.over_seeds(above)))
    note = (
        "Seeds in which it holds, strictly; a claim survives where the count stays that of the first column. "
        f"{seed_numbers(len(quantity.seeds) for quantity in values)}."
    )
    return Noted(lines, note)


def quantities(results: Results) -> list[Quantity]:
    """Every claim's quantity of every condition, then the differences of signal density."""
    runs = trained(results)
    counts = {
        run.name: {name: counts_under(run, normalizer) for name, normalizer in NORMALIZERS.items()}
        for run in runs
    }
    values = []
    for condition in dict.fromkeys(run.condition for run in runs):
        same = [run for run in runs if run.condition == condition]
        for name, (candidate_class, cell_of, threshold) in QUANTITIES.items():
            seeds = {
                label(run.name, name): {
                    normalizer: _under(cell_of(entry), run)
                    for normalizer, counted in counts[run.name].items()
                    for entry in search.credit_table(counted)
                    if entry.candidate_class is candidate_class
                }
                for run in same
            }
            values.append(Quantity(label(condition, name), threshold, seeds))
    what = "zero-advantage share"  # Of each condition minus Native's, seed by seed.
    for comparison in compare_with(runs, "native"):
        seeds = {
            label(comparison.of_seed(a.seed), what): {
                normalizer: _under(_gap(counted, counts[b.name][normalizer]), a, b)
                for normalizer, counted in counts[a.name].items()
            }
            for a, b in comparison.pairs
        }
        values.append(Quantity(label(comparison.name, what), 0.0, seeds))
    return values


def _gap(first: search.CreditCounts, second: search.CreditCounts) -> Cell:
    share, base = search.zero_advantage_share(first), search.zero_advantage_share(second)
    value = None if share is None or base is None else share - base
    return Cell(value, formula="share of groups without any advantage, minus Native's", decimals=3)


def _under(cell: Cell, *runs: RecordedRun) -> Cell:
    origins = tuple(run.all_completions for run in runs)
    return replace(cell, formula=f"{cell.formula} under the normalizer", origins=origins)


SUBSAMPLES = 8
_SIZE_CLASSES = (
    search.CandidateClass.NON_IMPROVING,
    search.CandidateClass.PARENT_IMPROVING,
    search.CandidateClass.STRICT_FRONTIER,
)
_BY_COMPLETION = ("outcome", "score", "archive_gap", "exposure", "response", "matches_base_code")


def subsampled(batch: GroupBatch, size: int, rng: np.random.Generator) -> GroupBatch:
    """The same groups with ``size`` of their completions, drawn without replacement, in their order."""
    order = rng.permuted(np.tile(np.arange(batch.outcome.shape[1]), (len(batch.outcome), 1)), axis=1)
    chosen = np.sort(order[:, :size], axis=1)
    parts = {name: np.take_along_axis(getattr(batch, name), chosen, axis=1) for name in _BY_COMPLETION}
    return replace(batch, **parts)


@table(
    "Group size",
    f"Recorded groups, {SUBSAMPLES} subsamples each below full size. {OVER_SEEDS}",
    label="Condition/size",
)
def group_size(results: Results) -> list[Line]:
    """Zero-advantage share and credit by class as groups shrink, by each run's mapping and normalizer.

    The paper names ties in groups of four as a limit.
    """
    try:
        return summarized(trained(results), size_parts)
    except (ConfigError, MappingError) as error:
        raise NoTableError(str(error)) from error


def size_parts(run: RecordedRun) -> Parts:
    """Every group size from 2 to the run's own."""
    mapping, normalizer = find_mapping(run.facts.mapping), find_normalizer(run.facts.normalizer)
    full, origin, parts = run.batch.outcome.shape[1], run.all_completions, dict[str, Cells]()
    for size in range(2, full + 1):
        rng = stream(run.seed, "group_size", size)
        whole = size == full
        samples = [run.batch] if whole else [subsampled(run.batch, size, rng) for _ in range(SUBSAMPLES)]
        rewards = [rewards_of(mapping, sample) for sample in samples]
        counts = [
            search.count_credit(sample, advantages_by_group(normalizer, r.reward, r.components))
            for sample, r in zip(samples, rewards, strict=True)
        ]
        total = reduce(add, counts)
        by_class = {e.candidate_class: class_cells(total, e, origin) for e in search.credit_table(total)}
        parts[f"G={size}"] = {
            "Zero advantage (%)": percent_cell(total.zero_groups, total.groups, ZERO_FORMULA, origin),
            "Credit mass valid_non_improving (%)": by_class[search.CandidateClass.NON_IMPROVING][
                "Credit mass (%)"
            ],
            **{f"Enrichment {name.value}": by_class[name]["Enrichment"] for name in _SIZE_CLASSES},
        }
    return parts
