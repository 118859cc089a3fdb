"""Draws from the distributions of selection; every one takes the generator it draws from."""

import numpy as np
from numpy.typing import NDArray

from search_to_signal.hosts.calm.operators import CROSSOVER, OPERATORS, operator_probabilities
from search_to_signal.hosts.calm.selection import primary, secondary_by_diversity, secondary_by_performance
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import EQUAL_WITHIN, SearchState
from search_to_signal.records.schema import Operator
from search_to_signal.search.archive import scores
from search_to_signal.search.member import Member


def draw_index(probabilities: NDArray[np.float64], rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to its entry; entries of zero are never drawn."""
    cumulative = np.cumsum(probabilities)
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))


def draw_index_or_none(probabilities: NDArray[np.float64], rng: np.random.Generator) -> int | None:
    """Draw an index with the probability of its entry; None with what is missing to one."""
    index = int(np.searchsorted(np.cumsum(probabilities), rng.random(), side="right"))
    return index if index < len(probabilities) else None


def _draw_pair(
    state: SearchState, settings: SearchSettings, rng: np.random.Generator
) -> tuple[Member, Member] | None:
    head = primary(len(state.archive), settings)
    first = draw_index(head, rng)
    if rng.random() < 0.5:
        chances = secondary_by_performance(scores(state.archive[: len(head)]))[first]
    else:
        chances = secondary_by_diversity(state.distances(state.archive[first]))
    second = draw_index_or_none(chances, rng)
    return None if second is None else (state.archive[first], state.archive[second])


def pair_exists(state: SearchState, settings: SearchSettings) -> bool:
    """Whether some crossover pair of a listed archive can be used, so that starting again ends."""
    head = state.archive[: settings.population_size]
    if head and head[0].score - head[-1].score >= EQUAL_WITHIN:
        return True
    return any(state.distances(first).any() for first in head)


def draw_crossover(
    state: SearchState, settings: SearchSettings, rng: np.random.Generator
) -> tuple[Member, Member] | None:
    """Draw first and second parent of a listed archive, starting again as the host does (HOST.md, point 11).

    None when no pair can ever be used.
    """
    if not pair_exists(state, settings):
        return None
    while True:
        pair = _draw_pair(state, settings, rng)
        if pair is not None:
            return pair


def draw_parents(
    state: SearchState, settings: SearchSettings, rng: np.random.Generator
) -> tuple[Operator, tuple[Member, ...]] | None:
    """Draw an operator and its parents, primary first, from a listed state; None when none can be used."""
    probabilities = operator_probabilities(len(state.archive), settings)
    if not state.archive or not probabilities.any():
        return None
    operator = OPERATORS[draw_index(probabilities, rng)]
    if operator != CROSSOVER:
        return operator, (state.archive[draw_index(primary(len(state.archive), settings), rng)],)
    pair = draw_crossover(state, settings, rng)
    return None if pair is None else (operator, pair)
