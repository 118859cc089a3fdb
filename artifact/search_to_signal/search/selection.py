"""Who becomes a parent, as exact distributions; sampling and exposure both read them.

The archive is listed (best first). A distribution that sums to less than one leaves the rest to
starting the whole crossover draw again (host point 11).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search_to_signal.search.archive import EQUAL_WITHIN, scores
from search_to_signal.search.settings import SearchSettings
from search_to_signal.search.state import Member

Vector = NDArray[np.float64]


def by_rank(size: int) -> Vector:
    """(size,) probabilities proportional to 1/rank."""
    weights = 1.0 / np.arange(1, size + 1)
    chances: Vector = weights / weights.sum()
    return chances


def primary(archive_size: int, settings: SearchSettings) -> Vector:
    """(head,) chance of each head member as the only or first parent (host point 10)."""
    return by_rank(min(archive_size, settings.population_size))


def secondary_by_performance(head_scores: Vector, first: int) -> Vector:
    """(head,) chance of each head member; zero for those equal to the first parent."""
    usable = np.abs(head_scores - head_scores[first]) >= EQUAL_WITHIN
    chances: Vector = by_rank(len(head_scores)) * usable
    return chances


def distances(archive: Sequence[Member], first: Member) -> Vector:
    """(n,) share of each idea's distinct words that the first parent's idea lacks; 0 for a wordless idea."""
    known = first.words
    return np.array([len(m.words - known) / len(m.words) if m.words else 0.0 for m in archive])


def secondary_by_diversity(distance: Vector) -> Vector:
    """(n,) chance of each member by rank, most distant first, better listed first among equals.

    Zero for members at distance zero.
    """
    ranked = np.argsort(-distance, kind="stable")
    chance = np.empty(len(distance))
    chance[ranked] = by_rank(len(distance))
    return chance * (distance > 0)


def crossover_pairs(archive: Sequence[Member], settings: SearchSettings) -> NDArray[np.float64]:
    """(head, n) chance of each pair of first and second parent, given that the draw ends.

    All zero when no pair can ever be used.
    """
    first = primary(len(archive), settings)
    head_scores = scores(archive[: len(first)])
    pairs = np.zeros((len(first), len(archive)))
    for index, chance in enumerate(first):
        pairs[index] += chance / 2 * secondary_by_diversity(distances(archive, archive[index]))
        pairs[index, : len(first)] += chance / 2 * secondary_by_performance(head_scores, index)
    total = pairs.sum()
    return pairs / total if total > 0 else pairs
