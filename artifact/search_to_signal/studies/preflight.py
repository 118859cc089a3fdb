"""Checks before any run: mappings and normalizers on synthetic groups, instances, models."""

from collections.abc import Mapping

import numpy as np

from search_to_signal.errors import MappingError, ModelFileError
from search_to_signal.generators.model_files import model_directory
from search_to_signal.generators.weight_headers import tensor_shapes
from search_to_signal.learner.settings import PROJECTIONS
from search_to_signal.normalizer import (
    NORMALIZERS,
    ComponentNormalizer,
    Normalizer,
    advantages,
    advantages_by_group,
    get_normalizer,
)
from search_to_signal.numerics import Floats
from search_to_signal.plugins import third_party_errors
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import Problem
from search_to_signal.problems.data import instance_bytes
from search_to_signal.profiles.profile import Profile
from search_to_signal.records.groups import OUTCOMES, VALID_CODE, GroupBatch
from search_to_signal.rewards import get_mapping, rewards_of


def check_conditions(profile: Profile) -> None:
    """Raise MappingError where a mapping or normalizer of a cohort fails on a group of its size."""
    trained = [config for config in profile.runs() if config.trained]
    groups = trial_groups(profile.generation.group_size)
    for mapping_name, normalizer_name in sorted({(config.mapping, config.normalizer) for config in trained}):
        mapping, normalizer = get_mapping(mapping_name), get_normalizer(normalizer_name)
        # A run computes credit group by group.
        for number in range(len(groups.outcome)):
            rewards = rewards_of(mapping, groups.at(slice(number, number + 1)))
            advantages_by_group(normalizer, rewards.reward, rewards.components)


def unordered_normalizers(profile: Profile) -> list[str]:
    """Own normalizers that give a higher reward of a group less, or equal ones different advantages.

    Those of components are not asked: their order is of no single reward.
    """
    names = {config.normalizer for config in profile.runs() if config.trained} - set(NORMALIZERS)
    # Pairs of equal rewards, not in the order of their places.
    rewards = np.roll(np.arange(profile.generation.group_size) // 2, 1).astype(np.float64)[None]
    own = {name: get_normalizer(name) for name in sorted(names)}
    return [
        name
        for name, normalizer in own.items()
        if not isinstance(normalizer, ComponentNormalizer) and not _keeps_order(normalizer, rewards)
    ]


def _keeps_order(normalizer: Normalizer, rewards: Floats) -> bool:
    credit = advantages(normalizer, rewards, {"reward": rewards})
    order = np.argsort(rewards[0], kind="stable")
    steps, ties = np.diff(credit[0][order]), np.diff(rewards[0][order]) == 0
    slack = 1e-9 * float(np.abs(credit).max(initial=0.0))
    return bool((steps >= -slack).all() and (np.abs(steps[ties]) <= slack).all())


def check_instances(problem: Problem, split: str) -> None:
    """Raise DataHashError where instances of ours differ from the recorded ones.

    Raises MappingError where another's problem cannot make its instances, has none, or makes others when it
    is asked again.
    """
    if any(problem is ours for ours in PROBLEMS.values()):
        problem.instances(split)
        return
    what = f"problem {problem.name}, split {split}"
    with third_party_errors(what):
        first, again = tuple(problem.instances(split)), tuple(problem.instances(split))
    if not first:
        raise MappingError(f"{what} has no instances: give one or more")
    if not all(_is_instance(instance) for instance in (*first, *again)):
        raise MappingError(f"{what}: an instance is no mapping of arrays by name: make it by frozen_instance")
    if list(instance_bytes(first)) != list(instance_bytes(again)):
        raise MappingError(f"{what} has other instances when it is asked again: give fixed ones")


def _is_instance(instance: object) -> bool:
    return isinstance(instance, Mapping) and all(isinstance(a, np.ndarray) for a in instance.values())


def check_layers(model: str, trained: bool) -> None:
    """Raise ModelFileError where a model's weight files are cut, or lack the layers that adapters train.

    Their headers are read, not the weights, whose SHA-256 a run compares.
    """
    directory = model_directory(model)
    names = {name.split(".")[-2] for name in tensor_shapes(directory) if "." in name}
    lacking = [name for name in PROJECTIONS if name not in names]
    if trained and lacking:
        raise ModelFileError(
            f"the model in {directory} has no {', '.join(lacking)}, on which adapters are trained: give one "
            "of a family that has them, as Qwen2 and Llama do"
        )


def trial_groups(size: int) -> GroupBatch:
    """Return three groups (3, size): equal scores, every outcome in turn, failures with an empty archive."""
    turns = np.arange(size) % len(OUTCOMES)
    failed = np.full(size, (VALID_CODE + 1) % len(OUTCOMES))
    outcome = np.array([np.full(size, VALID_CODE), turns, failed], dtype=np.int8)
    known = np.where(outcome == VALID_CODE, 1.0, np.nan)
    scores = -5.0 - 0.1 * np.arange(size)
    return GroupBatch(
        outcome=outcome,
        score=known * np.array([np.full(size, -5.0), scores, scores]),
        bases=np.array([[-5.0, -5.2], [-5.2, np.nan], [np.nan, np.nan]]),
        frontier=np.array([-5.0, -5.2, np.nan]),
        archive_gap=known * 0.1,
        exposure=known * 0.5,
        response=np.tile(np.arange(size), (3, 1)),
        matches_base_code=np.zeros((3, size), dtype=np.bool_),
    )
