"""The colonies of CVRP and OP, and what the host does to a matrix before its ants see it."""

import math
from itertools import count

import numpy as np
from numpy.typing import NDArray

from search_to_signal.problems.ant_colony import kernels
from search_to_signal.problems.ant_colony.noise import Colony, noise_for
from search_to_signal.problems.base import Array, InfeasibleAnswerError, ScorePath

# What the host does to a heuristic matrix before its ants see it.

FLOOR = 1e-9


def floored(matrix: Array) -> NDArray[np.float64]:
    """Add 1e-9 and raise what is below 1e-9 to it, in the precision of the matrix, then widen to float64.

    NaN and inf stay. In half precision 1e-9 is zero, so that zeros stay zero.
    """
    with np.errstate(all="ignore"):
        lifted = np.asarray(matrix + FLOOR)
        lifted[lifted < FLOOR] = FLOOR
    return np.array(lifted, dtype=np.float64, order="C")


# The colony of CVRP.

DECAY = 0.9
PHEROMONE_FLOOR = 1e-10
LARGEST_LOAD = 2.0**20


def score_path(demands: Array, capacity: float) -> ScorePath:
    """Say which colony runs: the compiled one takes whole loads, as it keeps them in single precision."""
    loads = np.append(demands, capacity)
    whole = bool((loads == np.floor(loads)).all()) and loads.min() >= 0 and loads.max() <= LARGEST_LOAD
    return "fast" if whole else "fallback"


def best_cost(
    distance: Array, demands: Array, capacity: float, matrix: Array, ants: int, iterations: int
) -> float:
    """Return the cost of the best path; InfeasibleAnswerError when the matrix gives no probabilities."""
    weights, rates = floored(matrix), (iterations, DECAY, PHEROMONE_FLOOR)
    # A path visits every customer once and the depot at most as often.
    noise = noise_for(Colony(iterations * 2 * (len(demands) - 1), ants, len(demands)))
    if score_path(demands, capacity) == "fast":
        loads = demands.astype(np.float32)
        cost = kernels.route(np.array(distance), loads, capacity, weights, noise.exact, noise.coarse, *rates)
    else:
        cost = route_by_steps(distance, demands, capacity, weights, noise.exact, *rates)
    if math.isnan(cost):
        raise InfeasibleAnswerError("the matrix gives an ant no probabilities: not finite, or all zero")
    return cost


# The colony of OP.


def best_prize(
    prize: Array, distance: Array, maxlen: float, matrix: Array, ants: int, iterations: int
) -> float:
    """Return the largest prize sum of a path; weights that are not finite count as zero.

    Raises InfeasibleAnswerError when an ant that could go on finds no positive weight: there the host's torch
    refuses to write its uniform fallback, of single precision, into double precision.
    """
    weights, rates = floored(matrix), (iterations, DECAY)
    # A path visits every node at most once; a further node is where finished ants stay.
    noise = noise_for(Colony(iterations * len(prize), ants, len(prize) + 1))
    collected = kernels.orient(
        np.array(prize), np.array(distance), maxlen, weights, noise.exact, noise.coarse, *rates
    )
    if math.isnan(collected):
        raise InfeasibleAnswerError("the matrix gives an ant no probabilities: nothing it may go to weighs")
    return collected


Reals = NDArray[np.float64]
Ints = NDArray[np.int64]


@np.errstate(over="ignore")  # a weight may overflow; what is not finite is refused
def route_by_steps(
    distance: Reals,
    demand: Reals,
    capacity: float,
    heuristic: Reals,
    noise: Reals,
    iterations: int,
    decay: float,
    floor: float,
) -> float:
    """Cost of the best path, as ``kernels.route``; NaN when an ant has no probabilities.

    For loads that the kernels' single precision could round; much slower.
    """
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
