"""Stagnation and collapse (HOST.md, points 13, 14, 21 and 25)."""

from dataclasses import replace

import numpy as np

from search_to_signal.errors import ConfigError
from search_to_signal.hosts.calm.settings import TWENTIETH, SearchSettings
from search_to_signal.hosts.calm.state import SearchState, equal, state_of


def collapse_probability(stagnation: int, settings: SearchSettings) -> float:
    """Chance of a collapse before the next prompt; raises ConfigError for a threshold of -1."""
    if settings.collapse_threshold == TWENTIETH:
        raise ConfigError("search.collapse_threshold is -1: call SearchSettings.over(groups) before a run")
    if stagnation >= settings.collapse_threshold:
        return 1.0
    return min(1.0, settings.collapse_speed * stagnation)


def collapse_due(stagnation: int, settings: SearchSettings, rng: np.random.Generator) -> bool:
    """Draw whether to collapse now; always takes one number, so that later draws do not depend on it."""
    return bool(rng.random() < collapse_probability(stagnation, settings))


def collapsed(state: SearchState) -> SearchState:
    """Keep the first best member and every seed not equal to it; start counting and prompting afresh.

    Injected components survive.
    """
    best = max(state.archive, key=lambda member: member.score, default=None)
    kept = () if best is None else (best,)
    seeds = (seed for seed in state.seeds if best is None or not equal(seed.score, best.score))
    return replace(state_of((*kept, *seeds), state.seeds), injected=state.injected)


def stagnation_after(before: int, archive_size: int, improved: bool, settings: SearchSettings) -> int:
    """Counter after a round that began with ``archive_size`` members.

    A valid child above the global best resets it, however near and whether admitted or not (HOST.md, point
    21); otherwise only rounds that began with a full population count.
    """
    if improved:
        return 0
    return before + (archive_size >= settings.population_size)
