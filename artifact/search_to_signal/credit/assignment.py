"""Credit of a group: rewards and advantages, whichever host proposed it."""

import math
from collections.abc import Sequence
from typing import Any

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


# Credit that is recorded, beside credit that is computed again.

TOLERANCE = 1e-12


def agree(recorded: Sequence[float | None], expected: Sequence[float | None]) -> bool:
    """Whether numbers are equal within ``TOLERANCE``, relative and absolute; None equals None alone.

    Processors whose numerical kernels were not fixed (D46) round numpy's exponentials and sums differently.
    """
    return len(recorded) == len(expected) and all(map(agrees, recorded, expected))


def agrees(recorded: Any, expected: Any) -> bool:
    """Whether two numbers, or the numbers of two tables by name, are equal within ``TOLERANCE``."""
    if recorded is None or expected is None:
        return recorded is expected
    if isinstance(recorded, dict):
        return recorded.keys() == expected.keys() and all(agrees(recorded[n], expected[n]) for n in expected)
    return recorded == expected or math.isclose(recorded, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
