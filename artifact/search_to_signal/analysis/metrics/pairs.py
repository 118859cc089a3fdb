"""Pairwise signals of recorded groups: which completions and which distinctions reach a learner.

A distinction is two completions of a group of which one is better: of higher score, or valid where the other
is not. Every rule is asked of the same groups.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from search_to_signal.analysis.results import RecordedRun
from search_to_signal.normalizer import NORMALIZERS, advantages_by_group
from search_to_signal.numerics import Bools, Floats
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import CompletionRecord
from search_to_signal.rewards import MAPPINGS, OTHERS, rewards_of
from search_to_signal.rewards.pair_rounds import RoundSettings, distinct_scores, entries_of, recorded_rounds

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


def round_settings(run: RecordedRun) -> RoundSettings:
    """Return the run's own settings where its rule has rounds, else EvoTune's with one round at the end."""
    if run.manifest.of_rule.pairs:
        return recorded_rounds(run.config)
    return RoundSettings(finetuning_frequency=len(run.groups))


def pair_table(run: RecordedRun) -> PairTable:
    """Build the pairs of a run, and which of them the threshold of their round kept."""
    settings = round_settings(run)
    rows, judged, kept = [], [], []
    for start in range(0, len(run.groups), settings.finetuning_frequency):
        part = run.groups[start : start + settings.finetuning_frequency]
        threshold = settings.threshold([score for group in part for score in distinct_scores(group)])
        whole = len(part) == settings.finetuning_frequency and threshold is not None
        for number, score, row in _pairs(part, start):
            rows.append((number, *row))
            judged.append(whole)
            kept.append(whole and threshold is not None and score >= threshold)
    columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    group, chosen, rejected = (column.astype(np.int64) for column in columns[:3])
    return PairTable(group, chosen, rejected, columns[3], np.array(judged, bool), np.array(kept, bool))


def _pairs(
    groups: tuple[tuple[CompletionRecord, ...], ...], start: int
) -> Iterator[tuple[int, float, tuple[int, int, float]]]:
    for number, group in enumerate(groups, start=start):
        for pair in entries_of(group):
            low = -np.inf if pair.rejected_score is None else pair.rejected_score
            yield number, pair.chosen_score, (pair.chosen, pair.rejected, pair.chosen_score - low)


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
            advantages[name] = advantages_by_group(
                NORMALIZERS[normalizer], rewards.reward, rewards.components
            )
        return advantages

    @cached_property
    def sides(self) -> dict[str, tuple[Floats, Floats]]:
        """(T, G) credit and debit, both from 0 up, by rule; of DPO the times chosen and rejected."""
        shape = self.batch.outcome.shape
        sides = {name: (np.maximum(a, 0.0), np.maximum(-a, 0.0)) for name, a in self.advantages.items()}
        for name, part in ((DPO, None), (KEPT, self.pairs.kept)):
            sides[name] = (
                self.pairs.counts(shape, "chosen", part),
                self.pairs.counts(shape, "rejected", part),
            )
        return sides

    @cached_property
    def preferences(self) -> dict[str, Bools]:
        """(T, G, G) by rule: whether the learner is trained to prefer the first completion to the second."""
        shape = self.batch.outcome.shape
        preferences = {name: a[:, :, None] > a[:, None, :] for name, a in self.advantages.items()}
        preferences[DPO] = self.pairs.matrix(shape)
        preferences[KEPT] = self.pairs.matrix(shape, self.pairs.kept)
        return preferences


def signals(run: RecordedRun) -> Signals:
    """The signals of a run."""
    return Signals(run.batch, pair_table(run))


def distinctions(batch: GroupBatch) -> Bools:
    """(N, G, G): the first completion is better than the second."""
    score = np.where(batch.valid, batch.score, -np.inf)
    better: Bools = score[:, :, None] > score[:, None, :]
    return better
