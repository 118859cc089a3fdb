"""Groupwise and pairwise rules compared: credited classes, learned distinctions, discarded pairs.

The same recorded groups are asked under every rule, whichever the run learned by: native and factorized GRPO,
the entropic rule, and DPO on EvoTune's pairs before and behind its threshold (D53, D54). The classes are the
exclusive ones of the paper (D18).
"""

from collections.abc import Callable

import numpy as np

from search_to_signal.analysis.metrics.pairs import PairTable, Signals, distinctions, signals
from search_to_signal.analysis.metrics.positive_credit import class_membership, count_credit, credit_table
from search_to_signal.analysis.metrics.search import beats_frontier
from search_to_signal.analysis.results import Origin, RecordedRun, Results
from search_to_signal.analysis.tables.cells import (
    Cell,
    Cells,
    Parts,
    PartsOf,
    Table,
    percent_cell,
    share_cell,
    summarized,
)
from search_to_signal.analysis.tables.learner_credit import OVER_SEEDS, enrichment_cell
from search_to_signal.numerics import Bools

RULE_COLUMNS = (
    "Candidates",
    "Prevalence (%)",
    "Credit mass (%)",
    "Credit enrichment",
    "Debit mass (%)",
    "Debit enrichment",
    "Without either (%)",
)
DISTINCTION_COLUMNS = (
    "Distinctions",
    "Told (%)",
    "Between valid (%)",
    "Valid and failed (%)",
    "With a frontier improver (%)",
)
PAIR_COLUMNS = (
    "Pairs per group",
    "Groups without a pair (%)",
    "In no pair (%)",
    "Frontier improvers chosen (%)",
    "Frontier improvers rejected (%)",
    "Frontier improvers in no pair (%)",
    "Rejected for failing alone (%)",
    "Removed by the threshold (%)",
    "Frontier choices removed (%)",
)
GAP_COLUMNS = (
    "Least gap",
    "Pairs left (%)",
    "Pairs of scores left (%)",
    "Frontier choices left (%)",
    "Rejected for failing alone (%)",
)
QUARTILES = (25, 50, 75)


def _signals(results: Results) -> dict[str, Signals]:
    return {run.name: signals(run) for run in results.cohort}


def _of_signals(results: Results, cells: Callable[[RecordedRun, Signals], Parts]) -> PartsOf:
    """Compute the cells of a run from its signals, which all tables of this family share."""
    signals = results.once(_signals)
    return lambda run: cells(run, signals[run.name])


def rule_cells(run: RecordedRun, signals: Signals) -> Parts:
    """RULE_COLUMNS by rule and class."""
    member, origin = class_membership(run.batch), run.all_completions
    parts: dict[str, Cells] = {}
    for name, (credit, debit) in signals.sides.items():
        up, down = count_credit(run.batch, credit), count_credit(run.batch, debit)
        idle = (credit == 0.0) & (debit == 0.0)
        for plus, minus, own in zip(credit_table(up), credit_table(down), member, strict=True):
            none = int((own & idle).sum())
            parts[f"{name}/{plus.candidate_class.value}"] = (
                Cell(plus.candidates, formula="completions of the class", origins=(origin,)),
                percent_cell(plus.candidates, up.completions, "those of the class / completions", origin),
                share_cell(plus.mass_share, "credit of the class / all credit", origin),
                enrichment_cell(plus, origin),
                share_cell(minus.mass_share, "debit of the class / all debit", origin),
                enrichment_cell(minus, origin),
                percent_cell(none, plus.candidates, "those without credit or debit / the class", origin),
            )
    return parts


def rules(results: Results) -> Table:
    """Credit and debit by candidate class under every rule, by condition and run."""
    note = (
        "Every rule on the recorded groups of the run, whatever it learned by. Credit is the positive part "
        "of the advantage, debit the negative one; of DPO how often a completion is chosen and rejected. "
        f"Exclusive classes (D18). {OVER_SEEDS}"
    )
    rows = summarized(results.cohort, _of_signals(results, rule_cells))
    return Table(
        "rules", "Credit by rule and class", "cohort", RULE_COLUMNS, rows, "Condition/rule/class", note
    )


def distinction_cells(run: RecordedRun, signals: Signals) -> Parts:
    """DISTINCTION_COLUMNS by rule."""
    better, origin = distinctions(run.batch), run.all_completions
    valid, improver = run.batch.valid, beats_frontier(run.batch)
    kinds = (better, better & valid[:, None, :], better & ~valid[:, None, :], better & improver[:, :, None])
    formula = "distinctions that the rule tells / distinctions"
    return {
        name: (
            Cell(int(better.sum()), formula="distinctions", origins=(origin,)),
            *(_part(kind, preferences, formula, origin) for kind in kinds),
        )
        for name, preferences in signals.preferences.items()
    }


def _part(whole: Bools, part: Bools, formula: str, origin: Origin) -> Cell:
    """The share of the whole that is of the part."""
    return percent_cell(int((whole & part).sum()), int(whole.sum()), formula, origin)


def distinctions_learned(results: Results) -> Table:
    """Build the table of distinctions within groups that reach the learner, by rule, condition and run."""
    note = (
        "A distinction is two completions of a group of which one is better by score, or valid where the "
        "other failed. A rule tells it where the better one has the higher advantage, DPO where the two are "
        "a pair. "
        "Shares: means of the seeds' shares ± sample standard deviation."
    )
    rows = summarized(results.cohort, _of_signals(results, distinction_cells))
    title = "Distinctions that reach the learner"
    return Table("distinctions", title, "cohort", DISTINCTION_COLUMNS, rows, "Condition/rule", note)


def pair_cells(run: RecordedRun, signals: Signals) -> Parts:
    """PAIR_COLUMNS of one run."""
    pairs, origin, shape = signals.pairs, run.all_completions, run.batch.outcome.shape
    chosen, rejected = (pairs.counts(shape, side) > 0 for side in ("chosen", "rejected"))
    unpaired = ~chosen & ~rejected
    improver, failed = beats_frontier(run.batch), ~run.batch.valid[pairs.group, pairs.rejected]
    frontier = improver[pairs.group, pairs.chosen] & pairs.judged
    with_pair = len(set(pairs.group.tolist()))
    per_group = Cell(len(failed) / shape[0], formula="pairs / groups", origins=(origin,), decimals=2)
    of_improvers = "of the frontier improvers / frontier improvers"
    return {
        "": (
            per_group,
            percent_cell(shape[0] - with_pair, shape[0], "groups without a pair / groups", origin),
            percent_cell(int(unpaired.sum()), unpaired.size, "completions in no pair / all", origin),
            _part(improver, chosen, f"chosen once or more, {of_improvers}", origin),
            _part(improver, rejected, f"rejected, {of_improvers}", origin),
            _part(improver, unpaired, f"in no pair, {of_improvers}", origin),
            percent_cell(int(failed.sum()), failed.size, "pairs whose rejected one failed / pairs", origin),
            _part(pairs.judged, ~pairs.kept, "pairs below the threshold / pairs before a round", origin),
            _part(frontier, ~pairs.kept, "the same of pairs that choose a frontier improver", origin),
        )
    }


def pairs(results: Results) -> Table:
    """Build the table of pairs and of the pairs below the threshold, by condition and run."""
    note = (
        "EvoTune's pairs of the recorded groups (D53). The threshold is that of the round behind a pair: "
        "the run's own rounds where it learned from pairs, else one at its end (D54). Means of the seeds' "
        "values ± sample standard deviation."
    )
    rows = summarized(results.cohort, _of_signals(results, pair_cells))
    return Table("pairs", "From groups to pairs", "cohort", PAIR_COLUMNS, rows, "Condition", note)


def gap_cells(run: RecordedRun, signals: Signals) -> Parts:
    """GAP_COLUMNS of one run, unfiltered and with a least gap at each quartile of its pairs of scores."""
    gap = signals.pairs.gap
    finite = np.isfinite(gap)
    gaps = np.percentile(gap[finite], QUARTILES) if finite.any() else np.full(len(QUARTILES), np.inf)
    cuts = {"all": 0.0, **{f"p{q}": float(gap) for q, gap in zip(QUARTILES, gaps, strict=True)}}
    return {name: _gap_row(run, signals.pairs, cut) for name, cut in cuts.items()}


def _gap_row(run: RecordedRun, pairs: PairTable, cut: float) -> Cells:
    left, finite, origin = pairs.gap >= cut, np.isfinite(pairs.gap), run.all_completions
    frontier = beats_frontier(run.batch)[pairs.group, pairs.chosen] & finite
    least = cut if np.isfinite(cut) else None
    return (
        Cell(least, formula="least difference of the two scores", origins=(origin,)),
        percent_cell(int(left.sum()), left.size, "pairs left / pairs", origin),
        _part(finite, left, "pairs of two scores left / those", origin),
        _part(frontier, left, "pairs of two scores that choose a frontier improver left / those", origin),
        _part(left, ~finite, "pairs left whose rejected one failed / pairs left", origin),
    )


def pair_gaps(results: Results) -> Table:
    """Build the table of pairs that a least score difference removes, by condition and run."""
    note = (
        "Quartiles are of each run's pairs of two scores; a pair with a failure has no gap and is never "
        "removed. Means of the seeds' values ± sample standard deviation."
    )
    rows = summarized(results.cohort, _of_signals(results, gap_cells))
    title = "Filtering pairs by score gap"
    return Table("pair_gaps", title, "cohort", GAP_COLUMNS, rows, "Condition/least gap", note)
