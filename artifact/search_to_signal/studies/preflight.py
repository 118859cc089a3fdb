"""Checks of a profile's mappings and normalizers on synthetic groups, and of its models, before any run."""

import numpy as np

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.model_files import model_directory
from search_to_signal.generators.weight_headers import tensor_names
from search_to_signal.learner.settings import PROJECTIONS
from search_to_signal.normalizer import advantages_by_group, get_normalizer
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


def check_layers(model: str, trained: bool) -> None:
    """Raise ModelFileError where a model's weight files are cut, or lack the layers that adapters train.

    Their headers are read, not the weights, whose SHA-256 a run compares.
    """
    directory = model_directory(model)
    names = {name.split(".")[-2] for name in tensor_names(directory) if "." in name}
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
