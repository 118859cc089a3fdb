"""Reward constructions: what an evaluated group tells the learner. Frozen is the absence of a mapping."""

from search_to_signal import plugins
from search_to_signal.errors import ConfigError
from search_to_signal.rewards.base import RewardMapping, Rewards, rewards_of
from search_to_signal.rewards.factorized import Factorized
from search_to_signal.rewards.native import Native
from search_to_signal.rewards.search_exposure import SearchExposure
from search_to_signal.rewards.tail_weighted import TailWeighted

__all__ = [
    "ALTERNATIVES",
    "MAPPINGS",
    "Factorized",
    "Native",
    "RewardMapping",
    "Rewards",
    "SearchExposure",
    "TailWeighted",
    "find_mapping",
    "get_mapping",
    "rewards_of",
]

MAPPINGS: dict[str, RewardMapping] = {
    mapping.name: mapping for mapping in (Native(), Factorized(), TailWeighted(), SearchExposure())
}


ALTERNATIVES: dict[str, RewardMapping] = {
    mapping.name: mapping
    for mapping in (
        Native(copies="code", name="native_d02"),
        Factorized(zero_rms=0.0, name="factorized_d06"),
        TailWeighted(order="score_first", name="tail_weighted_d07_score_first"),
        TailWeighted(order="summed", name="tail_weighted_d07_summed"),
        TailWeighted(novelty=0.0, name="tail_weighted_d08"),
        TailWeighted(repetition="all_but_first", name="tail_weighted_d09"),
        SearchExposure(validity="binary", name="search_exposure_d14"),
    )
}
"""The constructions under the other reading of one decision, so that a replay can tell what hangs on it."""


GROUP = "search_to_signal.mappings"


def get_mapping(name_or_path: str) -> RewardMapping:
    """Return a mapping by name, by entry point of group search_to_signal.mappings, or by pkg.mod:obj.

    Raises ConfigError with the known names.
    """
    return _checked(name_or_path, plugins.load(name_or_path, {**MAPPINGS, **ALTERNATIVES}, GROUP))


def find_mapping(name_or_path: str) -> RewardMapping:
    """``get_mapping`` for a name that a results directory gives: runs no code that nobody allowed.

    Raises ConfigError as ``get_mapping`` does, and for an import path that was not loaded before.
    """
    return _checked(name_or_path, plugins.find(name_or_path, {**MAPPINGS, **ALTERNATIVES}, GROUP))


def _checked(name_or_path: str, found: object) -> RewardMapping:
    if isinstance(found, type) or not isinstance(found, RewardMapping):
        raise ConfigError(
            f"{name_or_path!r} is not a reward mapping: give an object that has a name and maps a GroupBatch "
            "to Rewards; call a class or factory first"
        )
    return found
