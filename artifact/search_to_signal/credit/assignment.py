"""Credit of a group: rewards and advantages, whichever host proposed it."""

from collections.abc import Sequence

import msgspec

from search_to_signal.credit import RewardMapping, rewards_of
from search_to_signal.credit.normalizers import Normalizer, advantages
from search_to_signal.records.groups import batch_of
from search_to_signal.records.schema import CompletionRecord


def assign_credit(
    records: Sequence[CompletionRecord], mapping: RewardMapping, normalizer: Normalizer
) -> list[CompletionRecord]:
    """The records of one group with reward components, rewards and advantages.

    Raises MappingError where mapping or normalizer fails or breaks its promise.
    """
    rewards = rewards_of(mapping, batch_of([records]))
    credit = advantages(normalizer, rewards.reward, rewards.components)
    return [
        msgspec.structs.replace(
            record,
            components={name: float(values[0, i]) for name, values in rewards.components.items()},
            reward=float(rewards.reward[0, i]),
            advantage=float(credit[0, i]),
        )
        for i, record in enumerate(records)
    ]
