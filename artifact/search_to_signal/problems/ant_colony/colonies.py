"""The colonies of CVRP and OP, and what the host does to a matrix before its ants see it."""

import math

import numpy as np
from numpy.typing import NDArray

from search_to_signal.problems.ant_colony import fallback, kernels
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
        cost = fallback.route(distance, demands, capacity, weights, noise.exact, *rates)
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
