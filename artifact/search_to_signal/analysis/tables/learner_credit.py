"""Learner credit by candidate class, with base rates, signal density, and random controls.

Paper, Credit-Utility Alignment Analysis; supplement, Credit allocation and base rates. Everything but the
controls follows from the advantages that the learner saw.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from search_to_signal.analysis.metrics.positive_credit import (
    CLASSES,
    ClassCredit,
    CreditCounts,
    count_credit,
    credit_table,
)
from search_to_signal.analysis.results import NoTableError, Origin, RecordedRun, Results, Runs
from search_to_signal.analysis.tables.cells import (
    Cell,
    Cells,
    Parts,
    Table,
    number_cell,
    percent_cell,
    share_cell,
    summarized,
)
from search_to_signal.numerics import Floats
from search_to_signal.seeding import stream

CLASS_COLUMNS = (
    "Candidates",
    "Prevalence (%)",
    "Credit mass (%)",
    "Enrichment",
    "Enrichment by seed",
    "Mean of seeds' enrichments",
    "Positive (%)",
)
OVER_SEEDS = (
    "Over seeds enrichment is mean credit mass / mean prevalence (D29), everything else the mean of the "
    "seeds' values ± sample standard deviation."
)
SIGNAL_COLUMNS = (
    "Groups",
    "Zero advantage (%)",
    "Credit without improver (%)",
    "Credited of groups without improver (%)",
)


def trained(results: Results) -> Runs:
    """Return the runs of the live cohort that have a learner; raises NoTableError without any."""
    runs = tuple(run for run in results.cohort if run.advantages is not None)
    if not runs:
        raise NoTableError("no run of the cohort has a learner, so none has credit")
    return runs


def run_counts(run: RecordedRun, advantages: Floats | None = None) -> CreditCounts:
    """Count a run's credit, by its recorded advantages or by others, (T, G)."""
    seen = run.advantages if advantages is None else advantages
    if seen is None:
        raise NoTableError(f"{run.path} has no learner, so it has no credit")
    return count_credit(run.batch, seen)


def enrichment_cell(entry: ClassCredit, *origins: Origin) -> Cell:
    """E_A = P_A / P_D of one run, with the terms that an aggregate over runs is made of (D29)."""
    share, prevalence = entry.mass_share, entry.prevalence
    terms = None if share is None or prevalence is None else (share, prevalence)
    return Cell(entry.enrichment, 1, "credit mass share / prevalence", origins, decimals=3, terms=terms)


def class_cells(counts: CreditCounts, entry: ClassCredit, origin: Origin) -> Cells:
    """The cells of CLASS_COLUMNS for one candidate class (paper, eq. positive-credit-mass)."""
    enrichment = enrichment_cell(entry, origin)
    of_mass = "positive advantage of the class / all positive advantage"
    of_class = "completions of the class with positive advantage / those of the class"
    return (
        Cell(entry.candidates, formula="completions of the class", origins=(origin,)),
        percent_cell(entry.candidates, counts.completions, "completions of the class / completions", origin),
        share_cell(entry.mass_share, of_mass, origin),
        enrichment,
        replace(enrichment, value=enrichment.text(), terms=None),
        replace(enrichment, terms=None),
        share_cell(entry.positive_rate, of_class, origin),
    )


def credit_parts(run: RecordedRun) -> Parts:
    """CLASS_COLUMNS by candidate class."""
    counts = run_counts(run)
    entries = credit_table(counts)
    return {entry.candidate_class.value: class_cells(counts, entry, run.all_completions) for entry in entries}


def signal_cells(run: RecordedRun) -> Parts:
    """SIGNAL_COLUMNS of one run."""
    counts, origin = run_counts(run), run.all_completions
    zero = "groups with no advantage at all / groups"
    valid = "groups without improver that give a valid non-improver positive advantage / groups"
    anyone = "groups without improver that give anyone positive advantage / groups without improver"
    return {
        "": (
            Cell(counts.groups, formula="groups", origins=(origin,)),
            percent_cell(counts.zero_groups, counts.groups, zero, origin),
            percent_cell(counts.credited_valid_groups, counts.groups, valid, origin),
            percent_cell(counts.credited_groups, counts.non_improving_groups, anyone, origin),
        )
    }


def credit_by_class(results: Results) -> Table:
    """Prevalence, positive credit mass, enrichment and positive rate of every class, by condition and run."""
    note = (
        f"Exclusive classes (D18). Counts are sums over seeds. {OVER_SEEDS} Enrichment times prevalence "
        "adds up to 100 % over classes; with the mean of the seeds' enrichments it need not."
    )
    rows = summarized(trained(results), credit_parts)
    return Table("credit", "Credit by class", "cohort", CLASS_COLUMNS, rows, "Condition/class", note)


def signal(results: Results) -> Table:
    """Build the table of groups without signal, and of groups with credit but no improvement."""
    note = "Shares of groups: means of the seeds' shares ± sample standard deviation."
    rows = summarized(trained(results), signal_cells)
    return Table("signal", "Signal density", "cohort", SIGNAL_COLUMNS, rows, "Condition", note)


def recorded_credit(run: RecordedRun) -> tuple[Floats, dict[str, Floats]]:
    """(T, G) rewards and reward components, as recorded."""
    rewards = np.array([[record.reward for record in group] for group in run.groups], dtype=np.float64)
    parts = [[record.components or {} for record in group] for group in run.groups]
    names = list(parts[0][0])
    return rewards, {name: np.array([[part[name] for part in row] for row in parts]) for name in names}


SHUFFLES = 20
CONTROLS = ("recorded", "within", "across", "constant")
CONTROL_COLUMNS = (*(f"Enrichment {name.value}" for name in CLASSES), "Zero advantage (%)", "Credit mass")


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


def control_parts(run: RecordedRun) -> Parts:
    """CONTROL_COLUMNS of a run under every control."""
    rewards, _ = recorded_credit(run)
    drawn = {control: controlled_rewards(rewards, control, run.seed) for control in CONTROLS}
    return {
        control: _control_cells([run_counts(run, run.normalized(r)) for r in draws], run)
        for control, draws in drawn.items()
    }


def controls(results: Results) -> Table:
    """Build the table of enrichment under meaningless rewards, which separates mapping from group effects.

    ``within`` shuffles rewards inside each group. Flat groups stay flat, and improvers stand in groups that
    are not flat, so even a meaningless order inside groups enriches them: that part is no merit of the order.
    ``across`` shuffles over the run, which leaves an enrichment of about 1; ``constant`` gives no credit.
    """
    note = f"Shuffled rows count {SHUFFLES} shuffles of a run together. {OVER_SEEDS}"
    rows = summarized(trained(results), control_parts)
    return Table("controls", "Reward controls", "cohort", CONTROL_COLUMNS, rows, "Condition/rewards", note)


def _control_cells(draws: list[CreditCounts], run: RecordedRun) -> Cells:
    total, origin = reduce(add, draws), run.all_completions
    zero = "groups without any advantage / groups"
    return (
        *(enrichment_cell(entry, origin) for entry in credit_table(total)),
        percent_cell(total.zero_groups, total.groups, zero, origin),
        number_cell(total.total_mass / len(draws), "sum of positive advantages", origin, decimals=1),
    )
