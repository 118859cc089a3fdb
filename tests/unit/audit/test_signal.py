"""The numbers of a batch, from rewards, groups and advantages alone."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from search_to_signal import audit
from search_to_signal.audit.signal import SignalSums, logged, signal


def signal_of(
    reward: Any, group: Sequence[object], advantage: Any, parts: Any = None, weights: Any = None, **more: Any
) -> SignalSums:
    """The numbers of one batch; rows may stand in any order."""
    frame = {"reward": reward, "group": group, "advantage": advantage, **(parts or {}), **more}
    batch = audit.of_frame(frame, components=tuple(parts or ()), weights=weights)
    return signal(batch, batch.advantage)


def test_ties_are_told_apart() -> None:
    one = signal_of([1, 1, 0, 0, 0.5, 0.5, 0, 1], list("aabbccdd"), [0, 0, 0, 0, 0, 0, -1, 1])
    assert (one.groups, one.dead, one.all_right, one.all_wrong) == (4, 3, 1, 1)
    assert (one.taught, one.waste) == (2, 0.75)


def test_the_only_tie_is_right_or_wrong_by_what_others_get() -> None:
    above = signal_of([1, 1, 0, 1], list("aabb"), [0, 0, -1, 1])
    below = signal_of([0, 0, 0, 1], list("aabb"), [0, 0, -1, 1])
    alone = signal_of([1, 1, 1, 1], list("aabb"), [0, 0, 0, 0])
    assert [(one.all_right, one.all_wrong) for one in (above, below, alone)] == [(1, 0), (0, 1), (0, 0)]


def test_a_tie_is_no_longer_right_once_more_is_reached() -> None:
    first = signal_of([1, 1, 0, 1], list("aabb"), [0, 0, -1, 1])
    second = signal_of([2, 2, 0, 0], list("aabb"), [0, 0, 0, 0])
    assert first.all_right == 1
    both = first + second
    assert (both.right_at, both.all_right, both.wrong_at, both.all_wrong, both.dead) == (2, 1, 0, 1, 3)


def test_rounding_of_equal_rewards_teaches_nothing() -> None:
    """Eight times 1.2 have another mean in float32, which TRL divides: 0.001 is no credit, 0.3 is."""
    rewards, groups = [1.2] * 8 + [0, 1], ["a"] * 8 + ["b"] * 2
    rounded = signal_of(rewards, groups, [0.00119] * 8 + [-0.7, 0.7])
    assert (rounded.taught, rounded.dead) == (2, 1)
    given = signal_of(rewards, groups, [0.3] * 8 + [-0.7, 0.7])
    assert given.taught == 10


def test_rows_stand_in_any_order() -> None:
    rewards, groups, advantages = [0, 1, 0, 0, 2, 2], list("aabbcc"), [-1, 1, 0, 0, 0, 0]
    mixed = [5, 0, 3, 1, 4, 2]
    shuffled = signal_of(
        [rewards[at] for at in mixed], [groups[at] for at in mixed], [advantages[at] for at in mixed]
    )
    assert shuffled == signal_of(rewards, groups, advantages)


def test_the_shares_of_components_are_covariances() -> None:
    correct, style = np.array([0.0, 1.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.5, 0.5])
    reward = correct + 0.5 * style
    one = signal_of(
        reward, ["a"] * 4, reward - reward.mean(), {"correct": correct, "style": style}, {"style": 0.5}
    )
    expected = np.cov(reward, 0.5 * style)[0, 1] / np.var(reward, ddof=1)
    assert one.shares["style"] == pytest.approx(expected)
    assert expected < 0
    assert sum(one.shares.values()) == pytest.approx(1)
    assert (one.parts["style"].varied, one.parts["style"].against) == (1, 1)
    assert one.parts["correct"].against == 0


def test_half_a_group_ties_as_often_as_drawing_says() -> None:
    """Of four rewards with one success, half of the pairs hold none: C(3, 2) / C(4, 2)."""
    one = signal_of([1, 0, 0, 0, 1, 1, 1, 1], ["a"] * 4 + ["b"] * 4, np.zeros(8))
    assert one.half_flat_share == pytest.approx((0.5 + 1) / 2)


def test_doubling_is_a_bound_that_holds() -> None:
    generator = np.random.default_rng(0)
    chance = generator.beta(0.4, 0.8, 20_000)[:, None]
    small, large = (generator.random((20_000, size)) < chance for size in (8, 16))
    one = signal_of(small.ravel().astype(float), np.repeat(np.arange(20_000), 8).tolist(), np.zeros(160_000))
    doubled = float((large.min(axis=1) == large.max(axis=1)).mean())
    bound = one.least_flat_share_doubled
    assert bound is not None
    assert one.flat / one.groups > doubled > bound > 0.7 * doubled


def test_longer_completions_with_more_advantage_show() -> None:
    one = signal_of([0, 1, 0, 1], list("aabb"), [-1, 1, -1, 1], tokens=[10, 20, 1010, 1000])
    assert one.length.correlation == pytest.approx(0)
    up = signal_of([0, 1], ["a", "a"], [-1, 1], tokens=[10, 20])
    assert up.length.correlation == pytest.approx(1)


def test_numbers_that_are_missing_teach_nothing() -> None:
    one = signal_of([math.nan, 1, math.inf, 0], list("aabb"), [math.nan, 1, math.nan, 0])
    assert (one.taught, one.gain) == (1, 0.0)
    assert (SignalSums() + one).completions == 4


def test_a_trainer_logs_flat_names() -> None:
    one = signal_of([0, 1], ["a", "a"], [-2, 2], {"length": [0, 1]})
    assert logged(one) == {
        "dead_share": 0.0,
        "nan_share": 0.0,
        "all_right_share": 0.0,
        "all_wrong_share": 0.0,
        "effective_batch": 2.0,
        "largest_gain": 4.0,
        "largest_advantage": 2.0,
        "share/length": 1.0,
    }


def test_half_a_tied_group_ties_whatever_lacks_a_reward() -> None:
    one = signal_of([np.nan, *[0.0] * 7], ["a"] * 8, [0.0] * 8)
    assert (one.flat, one.half_flat_share) == (1, pytest.approx(1.0))
