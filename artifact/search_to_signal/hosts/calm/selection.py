"""Who becomes a parent, as exact distributions; sampling and exposure both read them.

All vectors are in listing order (best first). A distribution that sums to less than one leaves the rest
to starting the whole crossover draw again (HOST.md, points 10 and 11).
"""

import numpy as np
from numpy.typing import NDArray

from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import EQUAL_WITHIN

Vector = NDArray[np.float64]


def by_rank(size: int) -> Vector:
    """(size,) probabilities proportional to 1/rank."""
    weights = 1.0 / np.arange(1, size + 1)
    chances: Vector = weights / weights.sum()
    return chances


def primary(archive_size: int, settings: SearchSettings) -> Vector:
    """(head,) chance of each head member as the only or first parent."""
    return by_rank(min(archive_size, settings.population_size))


def secondary_by_performance(head_scores: Vector) -> Vector:
    """(head, head) chance of each head member by first parent; zero for those equal to it."""
    usable = np.abs(head_scores - head_scores[:, None]) >= EQUAL_WITHIN
    chances: Vector = by_rank(len(head_scores)) * usable
    return chances


def diversity_order(distance: Vector) -> NDArray[np.intp]:
    """(n,) positions, most distant first; among equally distant ones the better listed first."""
    return np.argsort(-distance, kind="stable")


def secondary_by_diversity(distance: Vector) -> Vector:
    """(n,) chance of each member by its rank in diversity_order; zero at distance zero."""
    chances = np.empty(len(distance))
    chances[diversity_order(distance)] = by_rank(len(distance))
    return chances * (distance > 0)


def crossover_pairs(head_scores: Vector, distances: Vector) -> Vector:
    """(head, n) chance of each pair of first and second parent, given that the draw ends.

    ``head_scores`` is (head,), row i of ``distances`` (head, n) holds the distances to head member i.
    All zero when no pair can ever be used.
    """
    head = len(head_scores)
    seconds = np.array([secondary_by_diversity(row) for row in distances])
    seconds[:, :head] += secondary_by_performance(head_scores)
    pairs: Vector = by_rank(head)[:, None] * seconds
    total = pairs.sum()
    return pairs / total if total > 0 else pairs


def _diversity_marginal(distances: Vector, member: int) -> tuple[Vector, Vector]:
    """(head,) chance of one member, and (head,) chance of any, as rows of secondary_by_diversity give them.

    Counts who comes before the member in diversity_order instead of sorting.
    """
    chances = by_rank(distances.shape[1])
    own = distances[:, member, None]
    before = (distances > own).sum(axis=1) + (distances[:, :member] == own).sum(axis=1)
    usable = np.concatenate(([0.0], np.cumsum(chances)))[(distances > 0).sum(axis=1)]
    return np.where(own[:, 0] > 0, chances[before], 0.0), usable


def crossover_chance(head_scores: Vector, distances: Vector, member: int) -> float:
    """Chance that one member is a parent of a crossover: row plus column of crossover_pairs, in linear time.

    Zero when no pair can ever be used.
    """
    size = len(head_scores)
    diverse, usable = _diversity_marginal(distances, member)
    performing = secondary_by_performance(head_scores)
    second = diverse + (performing[:, member] if member < size else 0.0)
    ends = by_rank(size) * (usable + performing.sum(axis=1))
    total = ends.sum()
    if total <= 0:
        return 0.0
    first = ends[member] if member < size else 0.0
    return float((first + by_rank(size) @ second) / total)
