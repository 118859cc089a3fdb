"""When pairs are trained on, on which of them, and in how many steps: what a record of them has to say."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from search_to_signal.config import Range, check_ranges, settings_of
from search_to_signal.records.preferences import PreferencePair
from search_to_signal.records.schema import CompletionRecord
from search_to_signal.rewards.pairs import pairs_of_records, ranked

Many = Annotated[int, Range(1, 1_000_000_000)]


class RoundSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A round every ``finetuning_frequency`` groups, on pairs whose choice is above a percentile (D54).

    The threshold is the (100 - ``percentile``)-th percentile of the valid scores since the last round. What
    else ``[rule_settings]`` holds is for the learner (``DpoSettings``).
    """

    finetuning_frequency: Many = 400
    percentile: Annotated[float, Range(0, 100)] = 70.0
    num_train_epochs: Annotated[int, Range(1, 1000)] = 2
    per_device_train_batch_size: Many = 2
    gradient_accumulation_steps: Many = 16

    def __post_init__(self) -> None:
        """Refuse numbers out of their ranges; raises ConfigError."""
        check_ranges(self, "rule_settings")

    def threshold(self, scores: Sequence[float]) -> float | None:
        """The least score of a choice by the valid scores since the last round; None without any."""
        return float(np.percentile(scores, 100 - self.percentile)) if scores else None

    def batches(self, pairs: int) -> int:
        """Batches of an epoch."""
        return -(-pairs // self.per_device_train_batch_size)

    def steps(self, pairs: int) -> int:
        """Optimizer steps of a round, as transformers 4.49 counts them: by the whole ones of an epoch."""
        whole = self.batches(pairs) // self.gradient_accumulation_steps
        return self.num_train_epochs * max(whole, 1)


def recorded_rounds(config: Mapping[str, Any]) -> RoundSettings:
    """The settings of a run's configuration; raises ConfigError that names the key that is wrong."""
    return settings_of(config.get("rule_settings", {}), RoundSettings, "rule_settings")


def entries_of(group: Sequence[CompletionRecord]) -> tuple[PreferencePair, ...]:
    """The pairs of a recorded group with their scores."""
    return tuple(
        PreferencePair(chosen=a, rejected=b, chosen_score=score, rejected_score=group[b].score)
        for a, b in pairs_of_records(group)
        if (score := group[a].score) is not None
    )


def distinct_scores(group: Sequence[CompletionRecord]) -> Iterator[float]:
    """The scores of a group's valid completions, of equal texts once, best first."""
    texts = [record.response_sha256 for record in group]
    for place in ranked([record.score for record in group], texts):
        score = group[place].score
        if score is not None:
            yield score
