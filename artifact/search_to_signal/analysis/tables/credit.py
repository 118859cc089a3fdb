"""Learner credit by candidate class, with base rates, and how much signal groups carry.

Paper, Credit-Utility Alignment Analysis; supplement, Credit allocation and base rates. Everything follows
from the advantages that the learner saw.
"""

from dataclasses import replace

from search_to_signal.analysis.aggregate import Cells, Parts, summarized
from search_to_signal.analysis.metrics.credit import ClassCredit, CreditCounts, count_credit, credit_table
from search_to_signal.analysis.results import Results, Runs
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, NoTableError, Origin, Table, percent_cell
from search_to_signal.numerics import Floats

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
    """The runs of the live cohort that have a learner; raises NoTableError without any."""
    runs = tuple(run for run in results.cohort if run.advantages is not None)
    if not runs:
        raise NoTableError("no run of the cohort has a learner, so none has credit")
    return runs


def run_counts(run: RecordedRun, advantages: Floats | None = None) -> CreditCounts:
    """The counts of a run, of its recorded advantages unless others are given: (T, G)."""
    seen = run.advantages if advantages is None else advantages
    if seen is None:
        raise NoTableError(f"{run.path} has no learner, so it has no credit")
    return count_credit(run.batch, seen)


def enrichment_cell(entry: ClassCredit) -> Cell:
    """E_A = P_A / P_D of one run, with the terms that an aggregate over runs is made of (D29)."""
    share, prevalence = entry.mass_share, entry.prevalence
    terms = None if share is None or prevalence is None else (share, prevalence)
    return Cell(entry.enrichment, formula="credit mass share / prevalence", decimals=3, terms=terms)


def class_cells(counts: CreditCounts, entry: ClassCredit, origin: Origin) -> Cells:
    """The cells of CLASS_COLUMNS for one candidate class (paper, eq. positive-credit-mass)."""
    mass = None if entry.mass_share is None else 100.0 * entry.mass_share
    rate = None if entry.positive_rate is None else 100.0 * entry.positive_rate
    enrichment = replace(enrichment_cell(entry), origins=(origin,))
    return (
        Cell(entry.candidates, formula="completions of the class", origins=(origin,)),
        percent_cell(entry.candidates, counts.completions, "completions of the class / completions", origin),
        _cell(mass, "positive advantage of the class / all positive advantage, in percent", origin, 2),
        enrichment,
        replace(enrichment, value=enrichment.text(), terms=None),
        replace(enrichment, terms=None),
        _cell(
            rate,
            "completions of the class with positive advantage / those of the class, in percent",
            origin,
            2,
        ),
    )


def credit_parts(run: RecordedRun) -> Parts:
    """CLASS_COLUMNS by candidate class."""
    counts = run_counts(run)
    return {
        entry.candidate_class.value: class_cells(counts, entry, run.everything)
        for entry in credit_table(counts)
    }


def signal_cells(run: RecordedRun) -> Parts:
    """SIGNAL_COLUMNS of one run."""
    counts, origin = run_counts(run), run.everything
    idle = "groups without improver that give a valid non-improver positive advantage"
    return {
        "": (
            Cell(counts.groups, formula="groups", origins=(origin,)),
            percent_cell(
                counts.zero_groups, counts.groups, "groups with no advantage at all / groups", origin
            ),
            percent_cell(counts.credited_valid_groups, counts.groups, f"{idle} / groups", origin),
            percent_cell(
                counts.credited_groups,
                counts.non_improving_groups,
                "groups without improver that give anyone positive advantage / groups without improver",
                origin,
            ),
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
    """How many groups teach nothing, and how many teach without an improvement."""
    note = "Shares of groups: means of the seeds' shares ± sample standard deviation."
    rows = summarized(trained(results), signal_cells)
    return Table("signal", "Signal density", "cohort", SIGNAL_COLUMNS, rows, "Condition", note)


def _cell(value: float | None, formula: str, origin: Origin, decimals: int) -> Cell:
    return Cell(value, formula=formula, origins=(origin,), decimals=decimals)
