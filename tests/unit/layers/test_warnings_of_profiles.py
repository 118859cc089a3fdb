"""A profile that trains too slowly, or whose archive never grows, is told so, and runs."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.profiles import profile_head

from search_to_signal.base.numerics import Floats
from search_to_signal.base.package_data import PROFILES
from search_to_signal.layers.reproduction import warnings_of
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.run.profile import load_profile

TEXT = profile_head("frozen", "native", groups=2)


def test_a_profile_without_a_learner_is_warned(tmp_path: Path) -> None:
    """The default rate is the paper's: the line names model, setting and a rate that works."""
    (tmp_path / "mine.toml").write_text(TEXT)
    profile = load_profile(str(tmp_path / "mine.toml"))
    (line,) = warnings_of(profile)
    assert "qwen2-2.1m is trained at learner.learning_rate 5e-05" in line
    assert "0.0008" in line
    frozen = msgspec.structs.replace(profile, conditions=("frozen",))
    assert list(warnings_of(frozen)) == []
    other = msgspec.structs.replace(profile, model="mounts/Qwen2.5-7B-Instruct")
    assert list(warnings_of(other)) == []
    faster = msgspec.structs.replace(profile, learner=LearnerSettings(learning_rate=8e-4))
    assert list(warnings_of(faster)) == []


@pytest.mark.parametrize(("threshold", "groups", "warned"), [(-1, 19, True), (-1, 20, False), (0, 19, False)])
def test_a_run_too_short_for_the_released_threshold_is_warned(
    tmp_path: Path, threshold: int, groups: int, warned: bool
) -> None:
    """A twentieth of fewer than 20 groups is 0, a collapse before every prompt (HOST.md, point 25)."""
    head = profile_head("frozen", groups=groups)
    (tmp_path / "mine.toml").write_text(f"{head}[search]\ncollapse_threshold = {threshold}\n")
    lines = list(warnings_of(load_profile(str(tmp_path / "mine.toml"))))
    assert ["before every prompt" in line for line in lines] == [True] * warned


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.toml")))
def test_shipped_profiles_need_no_warning(name: str) -> None:
    """What we ship trains at a rate that fits its models."""
    assert list(warnings_of(load_profile(name))) == []


@pytest.mark.parametrize(("jobs", "warned"), [(1, False), (2, True)])
def test_wall_seconds_of_runs_beside_each_other_are_warned_of(jobs: int, warned: bool) -> None:
    """The paper's profile on two cards: its anchor's budgets would be of a loaded machine."""
    profile = msgspec.structs.replace(load_profile("paper"), jobs=jobs)
    assert ["wall seconds" in line for line in warnings_of(profile)] == [True] * warned


def position(rewards: Floats) -> Floats:
    """Advantages by place, whatever the rewards."""
    return np.broadcast_to(np.arange(rewards.shape[1], dtype=float), rewards.shape).copy()


def negated(rewards: Floats) -> Floats:
    """The lower the better."""
    return rewards.mean(axis=1, keepdims=True) - rewards


def centred(rewards: Floats) -> Floats:
    """The distance from the mean."""
    return -negated(rewards)


@pytest.mark.parametrize(("name", "warned"), [("position", True), ("negated", True), ("centred", False)])
def test_a_normalizer_that_turns_rewards_round_is_warned_of(name: str, warned: bool, tmp_path: Path) -> None:
    """Equal rewards with other advantages, and a higher reward with a lower one; it runs all the same."""
    (tmp_path / "mine.toml").write_text(profile_head("frozen", f"native+{__name__}:{name}", groups=2))
    lines = list(warnings_of(load_profile(str(tmp_path / "mine.toml"))))
    assert [f"{__name__}:{name} gives" in line for line in lines if "normalizer" in line] == [True] * warned
