"""Lower bound of a tour's length: Held and Karp's 1-trees under node penalties, by subgradient ascent."""

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@numba.njit(cache=True)
def _one_tree(distance: Floats, penalty: Floats, degree: Ints) -> float:
    """Length of the least 1-tree: a spanning tree without node 0, and two edges to it; fills its degrees."""
    n = len(distance)
    degree[:] = 0
    reach = np.full(n, np.inf)
    parent = np.zeros(n, dtype=np.int64)
    done = np.zeros(n, dtype=np.bool_)
    node, total = 1, 0.0
    done[0] = done[1] = True
    for _ in range(n - 2):
        nearest = -1
        for other in range(1, n):
            if done[other]:
                continue
            length = distance[node, other] + penalty[node] + penalty[other]
            if length < reach[other]:
                reach[other], parent[other] = length, node
            if nearest < 0 or reach[other] < reach[nearest]:
                nearest = other
        total += reach[nearest]
        degree[nearest] += 1
        degree[parent[nearest]] += 1
        done[nearest] = True
        node = nearest
    ends = np.argsort(distance[0, 1:] + penalty[1:])[:2] + 1
    for other in ends:
        total += distance[0, other] + penalty[0] + penalty[other]
        degree[other] += 1
    degree[0] = 2
    return total


@numba.njit(cache=True)
def _ascent(distance: Floats, upper: float, rounds: int) -> float:
    n = len(distance)
    penalty, best = np.zeros(n), -np.inf
    degree, before = np.zeros(n, dtype=np.int64), np.zeros(n)
    scale, stale = 2.0, 0
    for _ in range(rounds):
        bound = _one_tree(distance, penalty, degree) - 2.0 * penalty.sum()
        slope = (degree - 2).astype(np.float64)
        if bound > best + 1e-9:
            best, stale = bound, 0
        else:
            stale += 1
        if stale == 30:
            scale, stale = 0.7 * scale, 0
        size = (slope * slope).sum()
        if size == 0.0:
            return bound
        step = scale * max(upper - bound, 1e-9) / size
        penalty += step * (0.7 * slope + 0.3 * before)
        before = slope
    return best


def held_karp_bound(distance: Floats, upper: float, rounds: int = 4000) -> float:
    """No tour through ``distance`` (n, n) is shorter than this; ``upper`` is the length of some tour."""
    return float(_ascent(distance, upper, rounds))
