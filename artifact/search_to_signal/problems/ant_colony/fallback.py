"""The routing colony step by step, for loads that the kernels' single precision could round; much slower."""

from itertools import count

import numpy as np
from numpy.typing import NDArray

from search_to_signal.problems.ant_colony import kernels

Reals = NDArray[np.float64]
Ints = NDArray[np.int64]


@np.errstate(over="ignore")  # a weight may overflow; what is not finite is refused
def route(
    distance: Reals,
    demand: Reals,
    capacity: float,
    heuristic: Reals,
    noise: Reals,
    iterations: int,
    decay: float,
    floor: float,
) -> float:
    """Cost of the best path, as ``kernels.route``; NaN when an ant has no probabilities."""
    pheromone, lowest = np.ones_like(heuristic), np.inf
    draws = count()
    for _ in range(iterations):
        paths = _paths(pheromone * heuristic, demand, capacity, noise, draws)
        if paths is None:
            return float("nan")
        edges = distance[paths[:-1], paths[1:]]
        costs = [kernels.sum_steps(edges, len(edges), ant) for ant in range(edges.shape[1])]
        lowest = min(lowest, *costs)
        pheromone *= decay
        # Ant by ant: a repeated edge of one path counts once.
        for path, cost in zip(paths.T, costs, strict=True):
            pheromone[path[:-1], path[1:]] += 1.0 / cost
        pheromone[pheromone < floor] = floor
    return lowest


def _paths(weight: Reals, demand: Reals, capacity: float, noise: Reals, draws: "count[int]") -> Ints | None:
    """The nodes (steps, ants) that ants go to from the depot and back; None without probabilities."""
    if not np.isfinite(weight).all():
        return None
    ants = noise.shape[1]
    here, ant = np.zeros(ants, np.int64), np.arange(ants)
    room, closed = np.full(ants, capacity), np.zeros((ants, len(demand)), bool)
    path = [here]
    while True:
        closed[ant, here] = True
        left = (~closed[:, 1:]).any(axis=1)
        if not (left.any() or here.any()):
            return np.stack(path)
        closed[:, 0] = (here == 0) & left
        allowed = np.where(closed | (demand > room[:, None]), 0.0, weight[here])
        if (allowed.sum(axis=1) == 0).any():
            return None
        here = (allowed / noise[next(draws)]).argmax(axis=1)
        room = np.where(here == 0, capacity, room - demand[here])
        path.append(here)
