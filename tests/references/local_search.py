"""2-opt and Or-opt with segment kicks: polishes a tour of up to a few hundred nodes in seconds."""

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NEIGHBOURS = 10
_LEAST = 1e-11


@numba.njit(cache=True)
def _reverse(tour: Ints, place: Ints, i: int, j: int) -> None:
    """Turn round tour[i..j], cyclically, by the shorter side."""
    n = len(tour)
    inside = (j - i + n) % n + 1
    if 2 * inside > n:
        i, j, inside = (j + 1) % n, (i - 1 + n) % n, n - inside
    for _ in range(inside // 2):
        a, b = tour[i], tour[j]
        tour[i], tour[j], place[b], place[a] = b, a, i, j
        i, j = (i + 1) % n, (j - 1 + n) % n


@numba.njit(cache=True)
def _two_opt(distance: Floats, near: Ints, tour: Ints, place: Ints, node: int) -> bool:
    n = len(tour)
    for step in (1, -1):
        after = tour[(place[node] + step + n) % n]
        for other in near[node]:
            gain = distance[node, after] - distance[node, other]
            if gain <= _LEAST:
                break
            beyond = tour[(place[other] + step + n) % n]
            if gain + distance[other, beyond] - distance[after, beyond] > _LEAST:
                if step == 1:
                    _reverse(tour, place, (place[node] + 1) % n, place[other])
                else:
                    _reverse(tour, place, place[other], (place[node] - 1 + n) % n)
                return True
    return False


@numba.njit(cache=True)
def _or_opt(distance: Floats, near: Ints, tour: Ints, place: Ints, node: int) -> bool:
    """Move a segment of up to three nodes that ends in ``node`` between two neighbours, by reversals."""
    n = len(tour)
    for length in range(1, 4):
        for step in (1, -1):
            last = place[node]
            first = (last - step * (length - 1) + n) % n
            before, after = tour[(first - step + n) % n], tour[(last + step + n) % n]
            head = tour[first]
            freed = distance[before, head] + distance[node, after] - distance[before, after]
            for other in near[node]:
                if freed - distance[node, other] <= _LEAST:
                    break
                if (step * (last - place[other]) % n + n) % n < length:
                    continue
                for side in (1, -1):
                    beyond = tour[(place[other] + side + n) % n]
                    if (step * (last - place[beyond]) % n + n) % n < length:
                        continue
                    cost = distance[node, other] + distance[head, beyond] - distance[other, beyond]
                    if freed - cost > _LEAST:
                        _insert(tour, place, first, last, step, other, beyond, node)
                        return True
    return False


@numba.njit(cache=True)
def _insert(
    tour: Ints, place: Ints, first: int, last: int, step: int, other: int, beyond: int, node: int
) -> None:
    """Rebuild the tour with the segment between ``other`` and ``beyond``, ``node`` beside ``other``."""
    n = len(tour)
    length = (step * (last - first) % n + n) % n + 1
    segment = np.empty(length, dtype=np.int64)
    for k in range(length):
        segment[k] = tour[(first + step * k + n) % n]
    taken = np.zeros(n, dtype=np.bool_)
    taken[segment] = True
    rest = np.empty(n - length, dtype=np.int64)
    count = 0
    for k in range(n):
        if not taken[tour[k]]:
            rest[count] = tour[k]
            count += 1
    out = 0
    for k in range(count):
        tour[out] = rest[k]
        out += 1
        following = rest[(k + 1) % count]
        if rest[k] == other and following == beyond:
            tour[out : out + length] = segment[::-1]
            out += length
        elif rest[k] == beyond and following == other:
            tour[out : out + length] = segment
            out += length
    for k in range(n):
        place[tour[k]] = k


@numba.njit(cache=True)
def _descend(distance: Floats, near: Ints, tour: Ints, place: Ints, awake: Ints) -> None:
    n = len(tour)
    queued = np.zeros(n, dtype=np.bool_)
    queue = np.empty(n, dtype=np.int64)
    size = 0
    for node in awake:
        if not queued[node]:
            queue[size] = node
            queued[node] = True
            size += 1
    start = 0
    while size > 0:
        node = queue[start]
        start, size = (start + 1) % n, size - 1
        queued[node] = False
        while _two_opt(distance, near, tour, place, node) or _or_opt(distance, near, tour, place, node):
            for k in range(-3, 4):
                touched = tour[(place[node] + k + n) % n]
                if not queued[touched]:
                    queue[(start + size) % n] = touched
                    queued[touched] = True
                    size += 1


@numba.njit(cache=True)
def _length(distance: Floats, tour: Ints) -> float:
    total = 0.0
    for k in range(len(tour)):
        total += distance[tour[k - 1], tour[k]]
    return total


@numba.njit(cache=True)
def _kicked(distance: Floats, near: Ints, start: Ints, kicks: int, seed: int) -> Ints:
    np.random.seed(seed)
    n = len(start)
    best = start.copy()
    place = np.empty(n, dtype=np.int64)
    place[best] = np.arange(n)
    _descend(distance, near, best, place, best.copy())
    length = _length(distance, best)
    for _ in range(kicks):
        tour = best.copy()
        at = np.random.randint(n)
        cuts = np.sort(np.random.choice(np.arange(1, min(n - 1, 50)), 3, replace=False))
        turned = np.roll(tour, -at)
        a, b, c = cuts
        tour = np.concatenate((turned[:a], turned[b:c], turned[a:b], turned[c:]))
        place[tour] = np.arange(n)
        ends = np.array(
            [
                tour[0],
                tour[a - 1],
                tour[a],
                tour[b],
                tour[b - 1],
                tour[c - 1],
                tour[c % n],
                tour[a + c - b - 1],
                tour[(a + c - b) % n],
            ]
        )
        _descend(distance, near, tour, place, ends)
        found = _length(distance, tour)
        if found < length + _LEAST:
            best, length = tour, min(found, length)
    return best


def polished(distance: Floats, tour: Ints, kicks: int, seed: int) -> Ints:
    """The best tour found from ``tour`` by that many double-bridge kicks, (n,) from node 0; never longer."""
    near = np.argsort(distance + np.diag(np.full(len(distance), np.inf)), axis=1)[:, :NEIGHBOURS]
    best = _kicked(distance, np.ascontiguousarray(near), tour.astype(np.int64), kicks, seed)
    return np.roll(best, -int(np.flatnonzero(best == 0)[0]))
