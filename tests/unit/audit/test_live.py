"""The numbers of a batch for a trainer's own log, from what a hook of any framework holds."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_to_signal import audit
from search_to_signal.audit import live
from search_to_signal.base.errors import ConfigError, IllFormedGroupError

REWARDS, GROUPS, ADVANTAGES = [0.0, 1.0, 1.0, 1.0, 0.5], ["a", "b", "a", "b", "c"], [-0.5, 0.0, 0.5, 0.0, 0.0]


class OnDevice:
    """What a tensor on a device is asked for; numpy cannot take it as it is."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)

    def tolist(self) -> Any:
        return self._values.tolist()

    def __array__(self, *_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def test_numbers_by_hand() -> None:
    found = live.numbers(REWARDS, GROUPS, ADVANTAGES)
    assert found == {
        "signal/dead_share": pytest.approx(1 / 3),
        "signal/nan_share": 0.0,
        "signal/effective_batch": 2.0,
        "signal/largest_gain": 1.0,
        "signal/largest_advantage": 0.5,
    }


def test_they_are_those_of_the_audit() -> None:
    """The dead groups and the largest gain that the report would show."""
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


def test_all_dead_is_told_as_such() -> None:
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


def test_limits_name_what_is_over() -> None:
    found = live.numbers(REWARDS, GROUPS, ADVANTAGES)
    assert live.exceeded(found, {"dead_share": 1 / 3, "signal/largest_gain": 0.5}) == {
        "signal/largest_gain": "signal/largest_gain is 1, over 0.5"
    }
    with pytest.raises(ConfigError, match="deadshare cannot be limited"):
        live.exceeded(found, {"deadshare": 0.5})


def test_a_hook_can_write_the_log_itself(tmp_path: Path) -> None:
    for _ in range(2):
        path = live.write(tmp_path / "log", 3, REWARDS, GROUPS, ADVANTAGES, components={"a": [0, 1, 1, 1, 0]})
    assert path.name == "rollouts_00000003_0001.jsonl"
    batches = list(audit.read(tmp_path / "log"))
    assert [one.step.tolist() for one in batches] == [[3, 3, 3]] * 2
    assert batches[0].reward.tolist() == [0.0, 1.0, 1.0, 1.0, 0.5]
    assert batches[0].advantage.tolist() == [-0.5, 0.5, 0.0, 0.0, 0.0]
    assert batches[0].components["a"].tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]
