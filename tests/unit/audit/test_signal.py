"""The numbers of a batch, in an audit and for a trainer's own log."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_to_signal import audit
from search_to_signal.audit import live
from search_to_signal.audit.signal import SignalSums, logged, signal
from search_to_signal.base.errors import ConfigError, IllFormedGroupError


def signal_of(
    reward: Any, group: Sequence[object], advantage: Any, parts: Any = None, weights: Any = None, **more: Any
) -> SignalSums:
    """The numbers of one batch; rows may stand in any order."""
    frame = {"reward": reward, "group": group, "advantage": advantage, **(parts or {}), **more}
    batch = audit.of_frame(frame, components=tuple(parts or ()), weights=weights)
    return signal(batch, batch.advantage)


def test_ties_are_told_apart_by_what_others_get() -> None:
    one = signal_of([1, 1, 0, 0, 0.5, 0.5, 0, 1], list("aabbccdd"), [0, 0, 0, 0, 0, 0, -1, 1])
    assert (one.groups, one.dead, one.all_right, one.all_wrong) == (4, 3, 1, 1)
    assert (one.taught, one.waste) == (2, 0.75)
    above = signal_of([1, 1, 0, 1], list("aabb"), [0, 0, -1, 1])
    below = signal_of([0, 0, 0, 1], list("aabb"), [0, 0, -1, 1])
    alone = signal_of([1, 1, 1, 1], list("aabb"), [0, 0, 0, 0])
    assert [(one.all_right, one.all_wrong) for one in (above, below, alone)] == [(1, 0), (0, 1), (0, 0)]
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


def test_a_trainer_logs_flat_names_of_rows_in_any_order() -> None:
    rewards, groups, advantages = [0, 1, 0, 0, 2, 2], list("aabbcc"), [-1, 1, 0, 0, 0, 0]
    mixed = [5, 0, 3, 1, 4, 2]
    shuffled = signal_of(
        [rewards[at] for at in mixed], [groups[at] for at in mixed], [advantages[at] for at in mixed]
    )
    assert shuffled == signal_of(rewards, groups, advantages)
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
    one = signal_of([np.nan, *[0.0] * 7], ["a"] * 8, [0.0] * 8)
    assert (one.flat, one.half_flat_share) == (1, pytest.approx(1.0))
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
    one = signal_of([math.nan, 1, math.inf, 0], list("aabb"), [math.nan, 1, math.nan, 0])
    assert (one.taught, one.gain) == (1, 0.0)
    assert (SignalSums() + one).completions == 4


REWARDS, GROUPS, ADVANTAGES = [0.0, 1.0, 1.0, 1.0, 0.5], ["a", "b", "a", "b", "c"], [-0.5, 0.0, 0.5, 0.0, 0.0]


class OnDevice:
    """What a tensor on a device is asked for; numpy cannot take it as it is."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)

    def tolist(self) -> Any:
        return self._values.tolist()

    def __array__(self, *_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def test_numbers_by_hand_are_those_of_the_audit() -> None:
    found = live.numbers(REWARDS, GROUPS, ADVANTAGES)
    assert found == {
        "signal/dead_share": pytest.approx(1 / 3),
        "signal/nan_share": 0.0,
        "signal/effective_batch": 2.0,
        "signal/largest_gain": 1.0,
        "signal/largest_advantage": 0.5,
    }
    # The dead groups and the largest gain that the report would show.
    found, groups = live.numbers(REWARDS, GROUPS, ADVANTAGES), live.grouped(REWARDS, GROUPS, ADVANTAGES)
    report = audit.audit(groups)
    assert found["signal/dead_share"] == report.share("dead")
    assert report.gain is not None
    assert found["signal/largest_gain"] == report.gain.value


@pytest.mark.parametrize("kind", [list, np.array, OnDevice])
def test_lists_arrays_and_tensors_are_taken(kind: Any) -> None:
    rewards = kind([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    advantages = kind([[-0.5, -0.5, 9.0], [0.5, 0.5, 9.0]])
    found = live.numbers(rewards, kind([3, 3]), advantages, mask=kind([[1, 1, 0], [1, 1, 0]]))
    assert found["signal/largest_gain"] == 1.0
    assert found["signal/effective_batch"] == 2.0


def test_without_advantages_the_named_normalizer_is_taken() -> None:
    plain = live.numbers([0.0, 1e-5], [1, 1], normalizer="trl-grpo-none")
    scaled = live.numbers([0.0, 1e-5], [1, 1], normalizer="verl-grpo")
    assert plain["signal/largest_gain"] == pytest.approx(1.0)
    assert scaled["signal/largest_gain"] > 10_000
    found = live.numbers(REWARDS, GROUPS, ADVANTAGES)
    assert live.exceeded(found, {"dead_share": 1 / 3, "signal/largest_gain": 0.5}) == {
        "signal/largest_gain": "signal/largest_gain is 1, over 0.5"
    }
    with pytest.raises(ConfigError, match="deadshare cannot be limited"):
        live.exceeded(found, {"deadshare": 0.5})


def test_shares_of_components() -> None:
    right, style = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, -0.5, 0.0, -0.5])
    reward = 2.0 * right + style
    found = live.numbers(
        reward,
        [1, 1, 1, 1],
        (reward - reward.mean()) / reward.std(),
        components={"right": right, "style": style, "flat": np.ones(4)},
        weights={"right": 2.0},
    )
    shares = {name: found[f"signal/share/{name}"] for name in ("right", "style", "flat")}
    assert shares == {
        "right": pytest.approx(2 / 1.5),
        "style": pytest.approx(-0.5 / 1.5),
        "flat": pytest.approx(0.0),
    }
    found = live.numbers([1.0, 1.0], [1, 1], [0.0, 0.0], components={"a": [1, 1], "b": [0, 0]})
    assert (found["signal/dead_share"], found["signal/effective_batch"]) == (1.0, 0.0)
    assert found["signal/largest_gain"] == 0.0
    assert not any(name.startswith("signal/share/") for name in found)
    assert all(map(math.isfinite, found.values()))


@pytest.mark.parametrize(
    "given",
    [
        ([1.0], [1, 1], None),
        ([1.0, 2.0], [1, 1], [1.0]),
        ([], [], None),
        ([1.0, 2.0], [1, 1], [[1.0], [1.0]]),
    ],
)
def test_columns_that_do_not_fit_are_refused(given: tuple[Any, Any, Any]) -> None:
    with pytest.raises(IllFormedGroupError):
        live.numbers(*given)


def test_a_hook_can_write_the_log_itself(tmp_path: Path) -> None:
    for _ in range(2):
        path = live.write(tmp_path / "log", 3, REWARDS, GROUPS, ADVANTAGES, components={"a": [0, 1, 1, 1, 0]})
    assert path.name == "rollouts_00000003_0001.jsonl"
    batches = list(audit.read(tmp_path / "log"))
    assert [one.step.tolist() for one in batches] == [[3, 3, 3]] * 2
    assert batches[0].reward.tolist() == [0.0, 1.0, 1.0, 1.0, 0.5]
    assert batches[0].advantage.tolist() == [-0.5, 0.5, 0.0, 0.0, 0.0]
    assert batches[0].components["a"].tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]
