"""Draws from the distributions of selection; every one takes the generator it draws from."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search_to_signal.search.archive import EQUAL_WITHIN, scores
from search_to_signal.search.selection import (
    crossover_pairs,
    distances,
    primary,
    secondary_by_diversity,
    secondary_by_performance,
)
from search_to_signal.search.settings import SearchSettings
from search_to_signal.search.state import Member


def draw_index(probabilities: NDArray[np.float64], rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to its entry; entries of zero are never drawn."""
    cumulative = np.cumsum(probabilities)
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))


def draw_index_or_none(probabilities: NDArray[np.float64], rng: np.random.Generator) -> int | None:
    """Draw an index with the probability of its entry; None with what is missing to one."""
    index = int(np.searchsorted(np.cumsum(probabilities), rng.random(), side="right"))
    return index if index < len(probabilities) else None


def draw_primary(archive: Sequence[Member], settings: SearchSettings, rng: np.random.Generator) -> Member:
    """Draw the only or first parent from the head of a listed, non-empty archive."""
    return archive[draw_index(primary(len(archive), settings), rng)]


def _draw_pair(
    archive: Sequence[Member], settings: SearchSettings, rng: np.random.Generator
) -> tuple[Member, Member] | None:
    head = primary(len(archive), settings)
    first = draw_index(head, rng)
    if rng.random() < 0.5:
        second = draw_index_or_none(secondary_by_performance(scores(archive[: len(head)]), first), rng)
    else:
        second = draw_index_or_none(secondary_by_diversity(distances(archive, archive[first])), rng)
    return None if second is None else (archive[first], archive[second])


def pair_exists(archive: Sequence[Member], settings: SearchSettings) -> bool:
    """Whether some crossover pair can be used, so that starting again comes to an end."""
    head = archive[: settings.population_size]
    if len(archive) < 2:
        return False
    if head[0].score - head[-1].score >= EQUAL_WITHIN:
        return True
    return bool(crossover_pairs(archive, settings).any())


def draw_crossover(
    archive: Sequence[Member], settings: SearchSettings, rng: np.random.Generator
) -> tuple[Member, Member] | None:
    """Draw first and second parent of a listed archive, starting again as the host does (host point 11).

    None when no pair can ever be used.
    """
    if not pair_exists(archive, settings):
        return None
    while True:
        pair = _draw_pair(archive, settings, rng)
        if pair is not None:
            return pair
