"""Reward constructions: from an evaluated group to rewards. Frozen is the absence of a mapping."""

from typing import NamedTuple

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError
from search_to_signal.base.progress import one_line
from search_to_signal.credit.base import RewardMapping as RewardMapping
from search_to_signal.credit.base import Rewards as Rewards
from search_to_signal.credit.base import answerable as answerable
from search_to_signal.credit.base import reads_exposure as reads_exposure
from search_to_signal.credit.base import rewards_of as rewards_of
from search_to_signal.credit.mappings import (
    Distinct,
    Factorized,
    Native,
    Pairs,
    Score,
    SearchExposure,
    TailWeighted,
)

PUBLISHED: dict[str, RewardMapping] = {
    mapping.name: mapping for mapping in (Native(), Factorized(), TailWeighted(), SearchExposure())
}
"""The constructions of the paper."""

OURS: dict[str, RewardMapping] = {"distinct": Distinct()}
"""What this project adds to them; pages and tables say so."""
OURS_NOTE = f"{', '.join(OURS)}: a mapping of this project, not of the paper."

MAPPINGS: dict[str, RewardMapping] = {**PUBLISHED, **OURS}


class Alternative(NamedTuple):
    """A construction under the other reading of one decision of spec/decisions.toml."""

    decision: str
    chosen: str
    mapping: RewardMapping


READINGS: tuple[Alternative, ...] = (
    Alternative("D02", "native", Native(copies="code", name="native_d02")),
    Alternative("D06", "factorized", Factorized(zero_rms=0.0, name="factorized_d06")),
    Alternative(
        "D07", "tail_weighted", TailWeighted(order="score_first", name="tail_weighted_d07_score_first")
    ),
    Alternative("D07", "tail_weighted", TailWeighted(order="summed", name="tail_weighted_d07_summed")),
    Alternative("D08", "tail_weighted", TailWeighted(novelty=0.0, name="tail_weighted_d08")),
    Alternative("D09", "tail_weighted", TailWeighted(repetition="all_but_first", name="tail_weighted_d09")),
    Alternative("D14", "search_exposure", SearchExposure(validity="binary", name="search_exposure_d14")),
    Alternative("D27", "search_exposure", SearchExposure(scale="plain", name="search_exposure_d27_plain")),
    Alternative(
        "D27", "search_exposure", SearchExposure(scale="centred_or_zero", name="search_exposure_d27_zero")
    ),
    Alternative("D28", "tail_weighted", TailWeighted(gap="valid", name="tail_weighted_d28")),
)
"""Every other reading that is a construction; a replay shows what depends on each."""

ALTERNATIVES: dict[str, RewardMapping] = {reading.mapping.name: reading.mapping for reading in READINGS}


OTHERS: dict[str, RewardMapping] = {mapping.name: mapping for mapping in (Score(), Pairs())}
"""The rewards of other hosts; no construction of the paper, and in none of its tables."""

_NAMED = {**MAPPINGS, **ALTERNATIVES, **OTHERS}
BUILT_IN: tuple[RewardMapping, ...] = tuple(_NAMED.values())
GROUP = "search_to_signal.mappings"
_LONGEST_NAME = 40


def get_mapping(name_or_path: str) -> RewardMapping:
    """Return a mapping by name, by entry point of group search_to_signal.mappings, or by pkg.mod:obj.

    Raises ConfigError with the known names.
    """
    return _checked(name_or_path, plugins.load(name_or_path, _NAMED, GROUP))


def find_mapping(name_or_path: str) -> RewardMapping:
    """``get_mapping`` for a name that a results directory gives: runs no code that was not allowed.

    Raises ConfigError as ``get_mapping`` does, and for an import path that was not loaded before.
    """
    plugin = plugins.find(name_or_path, _NAMED, GROUP, "--mapping")
    return _checked(name_or_path, plugin)


def own_name(name_or_path: str) -> str | None:
    """The name that a third-party mapping gives itself, in one short line; None for a built-in one.

    Raises ConfigError as ``find_mapping`` does.
    """
    if name_or_path in MAPPINGS or name_or_path in ALTERNATIVES:
        return None
    return one_line(str(find_mapping(name_or_path).name), _LONGEST_NAME)


def _checked(name_or_path: str, plugin: object) -> RewardMapping:
    if isinstance(plugin, type) or not isinstance(plugin, RewardMapping):
        raise ConfigError(
            f"{name_or_path!r} is not a reward mapping: give an object that has a name and maps a GroupBatch "
            "to Rewards; call a class or factory first"
        )
    return plugin
