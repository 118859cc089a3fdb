"""Stored credit against credit derived anew from the same records."""

from collections.abc import Sequence

import numpy as np

from search_to_signal.normalizer import Normalizer, advantages
from search_to_signal.numerics import Floats
from search_to_signal.records.groups import batch_of
from search_to_signal.records.schema import CompletionRecord
from search_to_signal.rewards.base import RewardMapping


def recorded_advantages(groups: Sequence[Sequence[CompletionRecord]]) -> Floats | None:
    """(N, G) advantages as the learner saw them; None where a completion has none, as in a frozen run."""
    return _stored([[record.advantage for record in group] for group in groups])


def recorded_rewards(groups: Sequence[Sequence[CompletionRecord]]) -> Floats | None:
    """(N, G) rewards as the learner saw them; None where a completion has none, as in a frozen run."""
    return _stored([[record.reward for record in group] for group in groups])


def largest_departure(
    groups: Sequence[Sequence[CompletionRecord]], mapping: RewardMapping, normalizer: Normalizer
) -> float | None:
    """Largest absolute difference between stored and rederived credit; None where none is stored.

    Raises IllFormedGroupError where the groups do not stack.
    """
    rewards, stored = recorded_rewards(groups), recorded_advantages(groups)
    if rewards is None or stored is None:
        return None
    anew = mapping(batch_of(groups))
    derived = advantages(normalizer, anew.reward, anew.components)
    return float(max(np.abs(anew.reward - rewards).max(), np.abs(derived - stored).max()))


def _stored(rows: list[list[float | None]]) -> Floats | None:
    if any(value is None for row in rows for value in row):
        return None
    return np.array(rows, dtype=np.float64)
