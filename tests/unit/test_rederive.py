"""Stored credit is compared with credit derived anew."""

import msgspec
import pytest
from spec.strategies import record

from search_to_signal.analysis.rederive import largest_departure, recorded_advantages, recorded_rewards
from search_to_signal.normalizer import group_advantages
from search_to_signal.records.groups import batch_of
from search_to_signal.records.schema import CompletionRecord
from search_to_signal.rewards import MAPPINGS

NATIVE = MAPPINGS["native"]


def credited() -> list[tuple[CompletionRecord, ...]]:
    """Two groups with the rewards and advantages that Native gives them."""
    groups = [tuple(record(step=s, index=i, score=-6.0 - i + s) for i in range(4)) for s in range(2)]
    reward = NATIVE(batch_of(groups)).reward
    credit = group_advantages(reward)
    return [
        tuple(
            msgspec.structs.replace(item, reward=float(r), advantage=float(a))
            for item, r, a in zip(group, reward[n], credit[n], strict=True)
        )
        for n, group in enumerate(groups)
    ]


def test_faithful_record() -> None:
    """A faithful record departs from its own mapping by nothing."""
    assert largest_departure(credited(), NATIVE, group_advantages) == 0.0


def test_altered_record() -> None:
    """One altered advantage, or another mapping, is seen at its full size."""
    groups = credited()
    first = groups[0][0]
    assert first.advantage is not None
    altered = msgspec.structs.replace(first, advantage=first.advantage + 0.25)
    departure = largest_departure([(altered, *groups[0][1:]), groups[1]], NATIVE, group_advantages)
    assert departure == pytest.approx(0.25)
    other = largest_departure(groups, MAPPINGS["factorized"], group_advantages)
    assert other is not None
    assert other > 0.1


def test_frozen_record() -> None:
    """A frozen run stores no credit, which is absent, not zero."""
    groups = [(record(index=0), record(index=1))]
    assert recorded_advantages(groups) is None
    assert recorded_rewards(groups) is None
    assert largest_departure(groups, NATIVE, group_advantages) is None
