"""Own mappings and normalizers are tried before the first run starts."""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.profiles import plain_profile

from search_to_signal.base.errors import MappingError, ModelFileError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.package_data import MODELS
from search_to_signal.credit import ALTERNATIVES, MAPPINGS, OTHERS, Rewards, rewards_of
from search_to_signal.credit.normalizers import NORMALIZERS, advantages_by_group
from search_to_signal.layers.reproduction import (
    check_conditions,
    check_instances,
    check_layers,
    require_parts,
    trial_groups,
)
from search_to_signal.problems.base import frozen_instance
from search_to_signal.records.groups import GroupBatch


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


profile = functools.partial(plain_profile, model="qwen2-2.1m", groups=2)


@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize("mapping", {**MAPPINGS, **ALTERNATIVES, **OTHERS}.values(), ids=lambda one: one.name)
def test_every_mapping_takes_the_trial(mapping: Any, size: int) -> None:
    """The made-up groups are well-formed: what can be run is not refused, under any normalizer."""
    rewards = rewards_of(mapping, trial_groups(size))
    for normalizer in NORMALIZERS.values():
        advantages_by_group(normalizer, rewards.reward, rewards.components)


def test_a_mapping_that_fails_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Equal scores come up late in a run; here they come first, and nothing has been written."""
    with pytest.raises(MappingError, match="mapping spread: spread has NaN"):
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


class Own:
    """A mapping of somebody's own, by what it makes of a group."""

    name = "own"

    def __init__(self, made: Callable[[GroupBatch], Any]) -> None:
        self.made = made

    def __call__(self, groups: GroupBatch) -> Any:
        """Whatever was given."""
        return self.made(groups)


def writes(groups: GroupBatch) -> Rewards:
    """Changes the scores that the next mapping would read."""
    score = groups.score
    score -= 1.0
    return Rewards({"all": groups.valid}, groups.valid)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            lambda groups: Rewards({"all": groups.valid}, groups.valid.tolist()),
            "reward is list: give a numpy",
        ),
        (lambda groups: Rewards({"all": groups.valid.tolist()}, groups.valid), "all is list: give a numpy"),
        (lambda groups: Rewards({}, groups.valid), "has no components"),
        (lambda groups: Rewards({"all": groups.valid[:, 1:]}, groups.valid), "a number for every completion"),
        (writes, "read-only"),
    ],
)
def test_what_a_mapping_has_to_give_is_said(made: Callable[[GroupBatch], Any], told: str) -> None:
    """One line names the mapping and what is wrong, and the groups are as they were."""
    groups = trial_groups(4)
    before = groups.score.copy()
    with pytest.raises(MappingError, match=f"mapping own.*{told}"):
        rewards_of(Own(made), groups)
    np.testing.assert_array_equal(groups.score, before)


class OwnProblem:
    """A problem of somebody's own, by the instances that it gives one after the other."""

    name = "own"

    def __init__(self, *given: Any) -> None:
        self.given = iter(given)

    def instances(self, split: str) -> Any:
        """The next ones; what is an error is raised."""
        instances = next(self.given)
        if isinstance(instances, Exception):
            raise instances
        return instances


ONE, OTHER = (frozen_instance(places=np.array([number])) for number in (1.0, 2.0))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((ValueError("no such city"),), "raised ValueError: no such city"),
        (((), ()), "has no instances"),
        ((({"places": 1.0},), ({"places": 1.0},)), "not a dict of arrays"),
        (((ONE,), (OTHER,)), "other instances"),
    ],
)
def test_what_a_problem_has_to_give_is_said(given: Any, told: str) -> None:
    """One line names problem and split, before anything starts."""
    problem: Any = OwnProblem(*given)
    with pytest.raises(MappingError, match=f"problem own, split train.*{told}"):
        check_instances(problem, "train")
    fine: Any = OwnProblem((ONE, OTHER), (ONE, OTHER))
    check_instances(fine, "train")


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
    with pytest.raises(ModelFileError, match="has no q_proj, k_proj, "):
        check_layers(str(model), trained=True)


def test_frozen_runs_try_nothing() -> None:
    """A frozen run has no mapping, and its profile's normalizer is never asked."""
    check_conditions(profile(conditions=("frozen",), normalizer=f"{__name__}:halved"))
