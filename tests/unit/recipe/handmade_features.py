"""Every term of every vocabulary by hand, from the arguments of a call, in other words than the grammar's."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Features = Mapping[str, Any]


def _columns(step: Any) -> Features:
    n = len(step)
    mean = step.sum(axis=0) / n
    return {
        "step": step,
        "mean": mean,
        "spread": np.sqrt(((step - mean) ** 2).sum(axis=0) / n),
        "local": np.partition(step, 2, axis=0)[:3].sum(axis=0) / 3,
        "reach": -np.sort(-step, axis=0)[0],
    }


def tsp(current: int, destination: int, unvisited: set[int], matrix: Any) -> Features:
    """Of every unvisited node, in order."""
    nodes = np.array(sorted(unvisited))
    step, home, rest = matrix[current, nodes], matrix[destination, nodes], matrix[np.ix_(nodes, nodes)]
    left = len(nodes) / len(matrix)
    return {
        **_columns(rest),
        "step": step,
        "home": home,
        "median": np.sort(rest, axis=1)[:, len(nodes) // 2],
        "ring": np.partition(rest, 5, axis=1)[:, :6].sum(axis=1) / 6,
        "crowd": np.exp(-4 * rest).sum(axis=1) / len(nodes),
        "centre": rest[np.argsort(rest.sum(axis=1))[0]],
        "balance": np.maximum(home - step, step - home),
        "trip": step + home,
        "*with": left,
        "*against": 1 - left,
    }


def cvrp(distances: Any, coordinates: Any, demands: Any, capacity: int) -> Features:
    """Of every edge, or of every node that an edge leads to."""
    n, longest = len(demands), distances.max()
    step, home, load = distances / longest, distances[0] / longest, demands / capacity
    dx, dy = (coordinates - coordinates[0]).T
    turn, depth, save, pair = (np.empty((n, n)) for _ in range(4))
    for i in range(n):
        for j in range(n):
            turn[i, j] = abs(np.sin((np.arctan2(dy[i], dx[i]) - np.arctan2(dy[j], dx[j])) / 2))
            depth[i, j] = abs(home[i] - home[j])
            save[i, j] = max(home[i] + home[j] - step[i, j], 0.0)
            pair[i, j] = load[i] + load[j]
    return {
        **_columns(step),
        "crowd": np.exp(-4 * step).sum(axis=0) / n,
        "home": home,
        "load": load,
        "turn": turn,
        "depth": depth,
        "save": save,
        "pair": pair,
        "*with": home,
        "*against": 1 - home,
    }


def op(prize: Any, distance: Any, maxlen: float) -> Features:
    """Of every edge, or of every node that an edge leads to."""
    n = len(prize)
    step = np.where(distance > maxlen, 1.0, distance / maxlen)
    home, near = step[0], np.exp(-8 * step)
    depth, rest, slack = (np.empty((n, n)) for _ in range(3))
    for i in range(n):
        for j in range(n):
            depth[i, j] = abs(home[i] - home[j])
            rest[i, j] = abs(prize[i] - prize[j])
            slack[i, j] = max(1 - step[i, j] - home[j], 0.0)
    return {
        **_columns(step),
        "crowd": near.sum(axis=0) / n,
        "home": home,
        "prize": prize,
        "trip": step + home,
        "slack": slack,
        "gain": near * prize,
        "rich": (near * prize).sum(axis=1) / prize.sum(),
        "depth": depth,
        "rest": rest,
        "*with": home,
        "*against": 1 - home,
    }


def obp(item: float, remaining: Any) -> Features:
    """Of every bin that fits the item."""
    whole = remaining.max()
    size, room = item / whole, remaining / whole
    gap = room - size
    return {
        "fresh": (remaining == whole).astype(float),
        "gap": gap,
        "tight": np.exp(gap) ** -20,
        "loose": (remaining > item).astype(float),
        "ratio": item / remaining,
        "twin": np.maximum(gap - size, size - gap),
        "after": gap - np.floor(gap / size) * size,
        "half": np.maximum(gap - 0.5, 0.5 - gap),
        "third": np.maximum(gap - 0.3, 0.3 - gap),
        "sliver": np.exp(np.maximum(gap - 0.1, 0.1 - gap)) ** -20,
        "waste": gap - gap**2,
        "order": np.arange(len(remaining)) / len(remaining),
        "*with": size,
        "*against": 1 - size,
    }


FEATURES: Mapping[str, Callable[..., Features]] = {"tsp": tsp, "cvrp": cvrp, "op": op, "obp": obp}


def call(problem: str, rng: np.random.Generator) -> tuple[Any, ...]:
    """Arguments as the host would give them, of a small instance drawn at random."""
    points = rng.random((12, 2))
    matrix = np.linalg.norm(points[:, None] - points[None], axis=-1)
    if problem == "tsp":
        unvisited = {int(node) for node in rng.permutation(11)[:7] + 1}
        return next(node for node in range(12) if node not in unvisited), 0, unvisited, matrix
    if problem == "cvrp":
        np.fill_diagonal(matrix, 1.0)
        return matrix, points, np.append(0.0, rng.integers(1, 10, 11)), 50
    if problem == "op":
        np.fill_diagonal(matrix, 1e9)
        return rng.random(12), matrix, 2.0
    item = float(rng.integers(20, 60))
    opened = rng.integers(int(item), 100, 8).astype(float)
    return item, np.concatenate((opened, [item], np.full(4, 100.0)))
