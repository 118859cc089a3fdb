"""The pairs that a run has collected, with their tokens, and what of them a round is made of."""

import msgspec

from search_to_signal.learner.base import TrainingGroup
from search_to_signal.learner.dpo_loss import TokenPair
from search_to_signal.records.preferences import PreferencePair
from search_to_signal.rewards.pair_rounds import distinct_scores, entries_of

Ids = tuple[int, ...]


class BufferedGroup(msgspec.Struct, frozen=True):
    """A group with the pairs that were made of it."""

    prompt_ids: Ids
    completion_ids: tuple[Ids, ...]
    pairs: tuple[PreferencePair, ...]


class PairBuffer(msgspec.Struct):
    """Every group so far, and the distinct valid scores since the last round."""

    groups: list[BufferedGroup] = msgspec.field(default_factory=list)
    scores: list[float] = msgspec.field(default_factory=list)

    def add(self, group: TrainingGroup) -> tuple[PreferencePair, ...]:
        """Take a group; returns its pairs."""
        entries = entries_of(group.records)
        completions = tuple(tuple(ids) for ids in group.completion_ids)
        self.groups.append(BufferedGroup(tuple(group.prompt_ids), completions, entries))
        self.scores += distinct_scores(group.records)
        return entries

    @property
    def collected(self) -> int:
        """How many pairs there are."""
        return sum(len(group.pairs) for group in self.groups)

    def above(self, threshold: float) -> list[TokenPair]:
        """The pairs whose choice reaches a threshold, in order, with their tokens."""
        return [
            TokenPair(group.prompt_ids, *(group.completion_ids[i] for i in (pair.chosen, pair.rejected)))
            for group in self.groups
            for pair in group.pairs
            if pair.chosen_score >= threshold
        ]
