"""Preference pairs of a group, as EvoTune makes them for DPO, and the count of them as a reward.

Source: CLAIRE-Labo/EvoTune, dpo_dataset.py (construct_and_add_pairs); D53.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np

from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import CompletionRecord
from search_to_signal.rewards.base import Rewards


class PairPositions(NamedTuple):
    """Positions of two completions of one group: what is learned is to prefer the first."""

    chosen: int
    rejected: int


def ranked(scores: Sequence[float | None], texts: Sequence[object]) -> list[int]:
    """The valid completions, best first, equal ones in order; of equal texts the first alone."""
    first = [place for place, score in enumerate(scores) if score is not None and not _seen(texts, place)]
    return sorted(first, key=lambda place: -(scores[place] or 0.0))


def pairs_of(scores: Sequence[float | None], texts: Sequence[object]) -> tuple[PairPositions, ...]:
    """The pairs of one group; ``scores`` (G,) are None where a completion is not valid.

    The better half of the distinct scores, rounded down, is paired with the worse in order of rank, as far as
    the shorter goes; then each failure with the next valid completion from the top, around and around.
    """
    order = ranked(scores, texts)
    failed = [place for place, score in enumerate(scores) if score is None and not _seen(texts, place)]
    levels = sorted({scores[place] for place in order}, key=lambda score: -(score or 0.0))
    better = set(levels[: len(levels) // 2])
    chosen = [place for place in order if scores[place] in better]
    rejected = [place for place in order if scores[place] not in better]
    by_score = list(zip(chosen, rejected, strict=False))
    by_failure = list(zip(cycle(order), failed, strict=False)) if order else []
    return tuple(PairPositions(*both) for both in [*by_score, *by_failure])


def _seen(texts: Sequence[object], place: int) -> bool:
    return texts[place] in texts[:place]


def pairs_of_records(group: Sequence[CompletionRecord]) -> tuple[PairPositions, ...]:
    """The pairs of a recorded group."""
    return pairs_of([record.score for record in group], [record.response_sha256 for record in group])


def pairs_of_batch(groups: GroupBatch) -> Iterator[tuple[PairPositions, ...]]:
    """The pairs of each of N groups."""
    for scores, valid, texts in zip(groups.score, groups.valid, groups.response, strict=True):
        known = [float(score) if ok else None for score, ok in zip(scores, valid, strict=True)]
        yield pairs_of(known, texts.tolist())


class Pairs:
    """How often a completion is chosen less how often it is rejected.

    It sums to 0 over a group, so that ``dr_grpo`` hands it on unchanged: the credit of DPO before its filter.
    """

    name = "pairs"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Components ``chosen`` >= 0 and ``rejected`` <= 0, (N, G) each."""
        chosen, rejected = np.zeros(groups.outcome.shape), np.zeros(groups.outcome.shape)
        for row, pairs in enumerate(pairs_of_batch(groups)):
            for pair in pairs:
                chosen[row, pair.chosen] += 1.0
                rejected[row, pair.rejected] -= 1.0
        return Rewards({"chosen": chosen, "rejected": rejected}, chosen + rejected)
