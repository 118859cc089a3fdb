"""Own mappings and normalizers are tried before the first run starts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_to_signal.errors import MappingError
from search_to_signal.normalizer import NORMALIZERS, advantages_by_group
from search_to_signal.numerics import Floats
from search_to_signal.profiles.profile import Profile
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards import ALTERNATIVES, MAPPINGS, OTHERS, Rewards, rewards_of
from search_to_signal.studies.preflight import check_conditions, trial_groups
from search_to_signal.studies.reproduction import require_parts


class Spread:
    """Scores over their range, which is nothing where all are equal."""

    name = "spread"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Divide by the range of each group."""
        score = np.where(groups.valid, groups.score, 0.0)
        with np.errstate(invalid="ignore"):
            reward = (score - score.min(axis=1, keepdims=True)) / np.ptp(score, axis=1, keepdims=True)
        return Rewards({"spread": reward}, reward)


spread = Spread()


def halved(rewards: Floats) -> Floats:
    """Half of the columns."""
    return rewards[:, : rewards.shape[1] // 2]


def profile(**changes: Any) -> Profile:
    """A small profile."""
    parts = {"purpose": "smoke", "problem": "tsp", "split": "embedded", "model": "qwen2-2.1m"}
    return Profile(**{**parts, "conditions": ("frozen", "native"), "seeds": (1,), "groups": 2, **changes})


@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize("mapping", {**MAPPINGS, **ALTERNATIVES, **OTHERS}.values(), ids=lambda one: one.name)
def test_every_mapping_takes_the_trial(mapping: Any, size: int) -> None:
    """The made-up groups are well-formed: what can be run is not refused, under any normalizer."""
    rewards = rewards_of(mapping, trial_groups(size))
    for normalizer in NORMALIZERS.values():
        advantages_by_group(normalizer, rewards.reward, rewards.components)


def test_a_mapping_that_fails_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Equal scores come up late in a run; here they come first, and nothing has been written."""
    with pytest.raises(MappingError, match="mapping spread: spread is not finite everywhere"):
        require_parts(
            profile(conditions=("frozen", f"{__name__}:spread")),
            tmp_path / "out",
            resume=False,
            keys=["cohort"],
        )
    assert not (tmp_path / "out").exists()


def test_a_normalizer_that_fails_is_refused_too() -> None:
    """It is tried on the rewards of the condition that it is for."""
    with pytest.raises(MappingError, match=r"normalizer .*halved returned shape \(1, 2\)"):
        check_conditions(profile(conditions=("frozen", f"native+{__name__}:halved")))


def test_frozen_runs_try_nothing() -> None:
    """A frozen run has no mapping, and its profile's normalizer is never asked."""
    check_conditions(profile(conditions=("frozen",), normalizer=f"{__name__}:halved"))
