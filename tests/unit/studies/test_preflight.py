"""Own mappings and normalizers are tried before the first run starts."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from search_to_signal.errors import MappingError, ModelFileError
from search_to_signal.normalizer import NORMALIZERS, advantages_by_group
from search_to_signal.numerics import Floats
from search_to_signal.package_data import MODELS
from search_to_signal.profiles.profile import Profile
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards import ALTERNATIVES, MAPPINGS, OTHERS, Rewards, rewards_of
from search_to_signal.studies.preflight import check_conditions, check_layers, trial_groups
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


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of a shipped model, whose files may be changed."""
    return Path(shutil.copytree(MODELS / "qwen2-2.1m", tmp_path / "model"))


def test_weights_that_were_cut_are_told_before_they_are_loaded(model: Path) -> None:
    """A copy that broke off, and bytes that are no weights: a line that names the file."""
    check_layers(str(model), trained=True)
    weights = model / "model.safetensors"
    whole = weights.read_bytes()
    for damaged in (whole[:-1], whole + b"0", whole[:100], b"", b"weights of no kind", b"\xff" * 64):
        weights.write_bytes(damaged)
        with pytest.raises(ModelFileError, match=r"model\.safetensors is damaged, or was not copied"):
            check_layers(str(model), trained=False)


def test_a_model_of_another_family_is_told_where_it_would_be_trained(model: Path) -> None:
    """GPT-2 has other layers than adapters are trained on; sampled from it may be."""
    save_file({"h.0.attn.c_attn.weight": np.zeros(2)}, model / "model.safetensors")
    check_layers(str(model), trained=False)
    with pytest.raises(ModelFileError, match="has no q_proj, k_proj, .* on which adapters are trained"):
        check_layers(str(model), trained=True)


def test_frozen_runs_try_nothing() -> None:
    """A frozen run has no mapping, and its profile's normalizer is never asked."""
    check_conditions(profile(conditions=("frozen",), normalizer=f"{__name__}:halved"))
