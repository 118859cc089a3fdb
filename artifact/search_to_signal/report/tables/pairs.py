"""Groupwise and pairwise rules compared: credited classes, learned distinctions, discarded pairs.

The same recorded groups are asked under every rule, whichever the run learned by: native and factorized GRPO,
the entropic rule, and DPO on EvoTune's pairs before and behind its threshold (D53, D54). The classes are the
exclusive ones of the paper (D18). A distinction is two completions of a group of which one is better: of
higher score, or valid where the other is not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.numerics import Bools, Floats
from search_to_signal.credit import MAPPINGS, OTHERS, rewards_of
from search_to_signal.credit.mappings import RoundSettings, distinct_scores, entries_of, recorded_rounds
from search_to_signal.credit.normalizers import NORMALIZERS, advantages_by_group
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.layers import COHORT
from search_to_signal.report.metrics import search
from search_to_signal.report.results import Origin, RecordedRun, Results
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
    Line,
    Parts,
    TableSpec,
    count_cell,
    percent_cell,
    share_cell,
    summarized,
)
from search_to_signal.report.tables.credit import OVER_SEEDS, enrichment_cell

Places = NDArray[np.int64]
DPO, KEPT = "DPO", "DPO above the threshold"
GROUPWISE: Mapping[str, tuple[str, str]] = {
    "native GRPO": ("native", "group"),
    "factorized GRPO": ("factorized", "group"),
    "entropic": ("score", "entropic"),
}
"""Rules that credit completions, with their mapping and normalizer."""


@dataclass(frozen=True)
class PairTable:
    """The P pairs of a run, with the T groups that they are of.

    group, chosen, rejected (P,); gap (P,) score of the choice less that of the rejected one, infinite for a
    failure; judged (P,) whether a round followed; kept (P,) whether the choice reached its threshold.
    """

    group: Places
    chosen: Places
    rejected: Places
    gap: Floats
    judged: Bools
    kept: Bools

    def matrix(self, shape: tuple[int, ...], chosen: Bools | None = None) -> Bools:
        """(T, G, G): whether the first completion is chosen over the second, in these pairs alone."""
        matrix = np.zeros((*shape, shape[-1]), dtype=bool)
        part = np.ones(len(self.group), dtype=bool) if chosen is None else chosen
        matrix[self.group[part], self.chosen[part], self.rejected[part]] = True
        return matrix

    def counts(self, shape: tuple[int, ...], side: str, chosen: Bools | None = None) -> Floats:
        """(T, G): how often each completion stands on a side, ``chosen`` or ``rejected``, of these pairs."""
        part = np.ones(len(self.group), dtype=bool) if chosen is None else chosen
        counts = np.zeros(shape)
        np.add.at(counts, (self.group[part], getattr(self, side)[part]), 1.0)
        return counts


def pair_table(run: RecordedRun) -> PairTable:
    """Build the pairs of a run, and which of them the threshold of their round kept.

    The rounds are the run's own where its rule has some, else EvoTune's with one round at the end.
    """
    settings = RoundSettings(finetuning_frequency=len(run.groups))
    if run.manifest.of_rule.pairs:
        settings = recorded_rounds(run.config)
    rows, judged, kept = [], [], []
    for start in range(0, len(run.groups), settings.finetuning_frequency):
        part = run.groups[start : start + settings.finetuning_frequency]
        threshold = settings.threshold([score for group in part for score in distinct_scores(group)])
        whole = len(part) == settings.finetuning_frequency and threshold is not None
        for number, group in enumerate(part, start=start):
            for pair in entries_of(group):
                low = -np.inf if pair.rejected_score is None else pair.rejected_score
                rows.append((number, pair.chosen, pair.rejected, pair.chosen_score - low))
                judged.append(whole)
                kept.append(whole and threshold is not None and pair.chosen_score >= threshold)
    columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    group_of, chosen, rejected = (column.astype(np.int64) for column in columns[:3])
    return PairTable(group_of, chosen, rejected, columns[3], np.array(judged, bool), np.array(kept, bool))


@dataclass(frozen=True)
class Signals:
    """The learning signals of each rule on one run's groups."""

    batch: GroupBatch
    pairs: PairTable

    @cached_property
    def advantages(self) -> dict[str, Floats]:
        """(T, G) advantages by groupwise rule."""
        known = {**MAPPINGS, **OTHERS}
        advantages = {}
        for name, (mapping, normalizer) in GROUPWISE.items():
            rewards = rewards_of(known[mapping], self.batch)
            by = NORMALIZERS[normalizer]
            advantages[name] = advantages_by_group(by, rewards.reward, rewards.components)
        return advantages

    @cached_property
    def sides(self) -> dict[str, tuple[Floats, Floats]]:
        """(T, G) credit and debit, both from 0 up, by rule; of DPO the times chosen and rejected."""
        shape = self.batch.outcome.shape
        sides = {name: (np.maximum(a, 0.0), np.maximum(-a, 0.0)) for name, a in self.advantages.items()}
        for name, part in ((DPO, None), (KEPT, self.pairs.kept)):
            chosen, rejected = (self.pairs.counts(shape, side, part) for side in ("chosen", "rejected"))
            sides[name] = chosen, rejected
        return sides

    @cached_property
    def preferences(self) -> dict[str, Bools]:
        """(T, G, G) by rule: whether the learner is trained to prefer the first completion to the second."""
        shape = self.batch.outcome.shape
        preferences = {name: a[:, :, None] > a[:, None, :] for name, a in self.advantages.items()}
        preferences[DPO] = self.pairs.matrix(shape)
        preferences[KEPT] = self.pairs.matrix(shape, self.pairs.kept)
        return preferences


QUARTILES = (25, 50, 75)


def _signals(results: Results) -> dict[str, Signals]:
    return {run.name: Signals(run.batch, pair_table(run)) for run in results.cohort}


SignalCells = Callable[[RecordedRun, Signals], Parts | Cells]


def _signal_table(
    title: str, note: str, label: str = "Condition"
) -> Callable[[SignalCells], TableSpec[SignalCells]]:
    """Make a table of what the function below gives of a run and its signals, made once for all tables."""

    def spec(function: SignalCells) -> TableSpec[SignalCells]:
        def rows(results: Results) -> list[Line]:
            signals = results.once(_signals)
            return summarized(results.cohort, lambda run: function(run, signals[run.name]))

        return TableSpec(function.__name__, title, COHORT, label, note, (), function, rows)

    return spec


def _part(whole: Bools, part: Bools, formula: str, origin: Origin) -> Cell:
    return percent_cell(int((whole & part).sum()), int(whole.sum()), formula, origin)


@_signal_table(
    "Credit by rule and class",
    "Every rule on the recorded groups of the run, whatever it learned by. Credit is the positive part "
    "of the advantage, debit the negative one; of DPO how often a completion is chosen and rejected. "
    f"Exclusive classes (D18). {OVER_SEEDS}",
    "Condition/rule/class",
)
def rules(run: RecordedRun, signals: Signals) -> Parts:
    """Credit and debit by candidate class under every rule."""
    member, origin = search.class_membership(run.batch), run.all_completions
    of_all, of_class = "those of the class / completions", "those without credit or debit / the class"
    parts: Parts = {}
    for name, (credit, debit) in signals.sides.items():
        up, down = search.count_credit(run.batch, credit), search.count_credit(run.batch, debit)
        idle = (credit == 0.0) & (debit == 0.0)
        for plus, minus, own in zip(search.credit_table(up), search.credit_table(down), member, strict=True):
            none = int((own & idle).sum())
            parts[f"{name}/{plus.candidate_class.value}"] = {
                "Candidates": count_cell(plus.candidates, "completions of the class", origin),
                "Prevalence (%)": percent_cell(plus.candidates, up.completions, of_all, origin),
                "Credit mass (%)": share_cell(plus.mass_share, "credit of the class / all credit", origin),
                "Credit enrichment": enrichment_cell(plus, origin),
                "Debit mass (%)": share_cell(minus.mass_share, "debit of the class / all debit", origin),
                "Debit enrichment": enrichment_cell(minus, origin),
                "Without either (%)": percent_cell(none, plus.candidates, of_class, origin),
            }
    return parts


@_signal_table(
    "Distinctions that reach the learner",
    "A distinction is two completions of a group of which one is better by score, or valid where the "
    "other failed. A rule tells it where the better one has the higher advantage, DPO where the two are "
    "a pair. "
    "Shares: means of the seeds' shares ± sample standard deviation.",
    "Condition/rule",
)
def distinctions(run: RecordedRun, signals: Signals) -> Parts:
    """Distinctions within groups that reach the learner, by rule."""
    score = np.where(run.batch.valid, run.batch.score, -np.inf)
    better, origin = score[:, :, None] > score[:, None, :], run.all_completions
    valid, improver = run.batch.valid[:, None, :], search.beats_frontier(run.batch)[:, :, None]
    kinds = {
        "Told (%)": better,
        "Between valid (%)": better & valid,
        "Valid and failed (%)": better & ~valid,
        "With a frontier improver (%)": better & improver,
    }
    formula = "distinctions that the rule tells / distinctions"
    return {
        rule: {
            "Distinctions": count_cell(int(better.sum()), "distinctions", origin),
            **{heading: _part(kind, preferences, formula, origin) for heading, kind in kinds.items()},
        }
        for rule, preferences in signals.preferences.items()
    }


@_signal_table(
    "From groups to pairs",
    "EvoTune's pairs of the recorded groups (D53). The threshold is that of the round behind a pair: "
    "the run's own rounds where it learned from pairs, else one at its end (D54). Means of the seeds' "
    "values ± sample standard deviation.",
)
def pairs(run: RecordedRun, signals: Signals) -> Cells:
    """Pairs, what is in none, and the pairs below the threshold."""
    pairs, origin, shape = signals.pairs, run.all_completions, run.batch.outcome.shape
    chosen, rejected = (pairs.counts(shape, side) > 0 for side in ("chosen", "rejected"))
    unpaired = ~chosen & ~rejected
    improver, failed = search.beats_frontier(run.batch), ~run.batch.valid[pairs.group, pairs.rejected]
    frontier = improver[pairs.group, pairs.chosen] & pairs.judged
    groups, lone = shape[0], shape[0] - len(set(pairs.group.tolist()))
    of_all, of_improvers = "completions in no pair / all", "of the frontier improvers / frontier improvers"
    of_pairs = "pairs whose rejected one failed / pairs"
    of_judged = "pairs below the threshold / pairs before a round"
    of_frontier = "the same of pairs that choose a frontier improver"
    return {
        "Pairs per group": Cell(len(failed) / groups, 1, "pairs / groups", (origin,), decimals=2),
        "Groups without a pair (%)": percent_cell(lone, groups, "groups without a pair / groups", origin),
        "In no pair (%)": percent_cell(int(unpaired.sum()), unpaired.size, of_all, origin),
        "Frontier improvers chosen (%)": _part(
            improver, chosen, f"chosen once or more, {of_improvers}", origin
        ),
        "Frontier improvers rejected (%)": _part(improver, rejected, f"rejected, {of_improvers}", origin),
        "Frontier improvers in no pair (%)": _part(improver, unpaired, f"in no pair, {of_improvers}", origin),
        "Rejected for failing alone (%)": percent_cell(int(failed.sum()), failed.size, of_pairs, origin),
        "Removed by the threshold (%)": _part(pairs.judged, ~pairs.kept, of_judged, origin),
        "Frontier choices removed (%)": _part(frontier, ~pairs.kept, of_frontier, origin),
    }


@_signal_table(
    "Filtering pairs by score gap",
    "Quartiles are of each run's pairs of two scores; a pair with a failure has no gap and is never "
    "removed. Means of the seeds' values ± sample standard deviation.",
    "Condition/least gap",
)
def pair_gaps(run: RecordedRun, signals: Signals) -> Parts:
    """Pairs left of all, and with a least gap at each quartile of a run's pairs of scores."""
    pairs, finite = signals.pairs, np.isfinite(signals.pairs.gap)
    gaps = np.percentile(pairs.gap[finite], QUARTILES) if finite.any() else np.full(len(QUARTILES), np.inf)
    cuts = {"all": 0.0, **{f"p{q}": float(gap) for q, gap in zip(QUARTILES, gaps, strict=True)}}
    frontier, origin = (
        search.beats_frontier(run.batch)[pairs.group, pairs.chosen] & finite,
        run.all_completions,
    )
    of_frontier = "pairs of two scores that choose a frontier improver left / those"
    failed, parts = "pairs left whose rejected one failed / pairs left", dict[str, Cells]()
    for name, cut in cuts.items():
        left, least = pairs.gap >= cut, cut if np.isfinite(cut) else None
        parts[name] = {
            "Least gap": Cell(least, formula="least difference of the two scores", origins=(origin,)),
            "Pairs left (%)": percent_cell(int(left.sum()), left.size, "pairs left / pairs", origin),
            "Pairs of scores left (%)": _part(finite, left, "pairs of two scores left / those", origin),
            "Frontier choices left (%)": _part(frontier, left, of_frontier, origin),
            "Rejected for failing alone (%)": _part(left, ~finite, failed, origin),
        }
    return parts
