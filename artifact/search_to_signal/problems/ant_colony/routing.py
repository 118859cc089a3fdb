"""The colony of CVRP."""

import math

import numpy as np

from search_to_signal.problems.ant_colony import kernels
from search_to_signal.problems.ant_colony.floor import floored
from search_to_signal.problems.ant_colony.noise import GENERATOR_SEED, Colony, noise_for
from search_to_signal.problems.base import Array, InfeasibleAnswerError, ScorePath

DECAY = 0.9
PHEROMONE_FLOOR = 1e-10
LARGEST_LOAD = 2.0**20


def colony_of(demands: Array, ants: int, iterations: int) -> Colony:
    """A path visits every customer once and the depot at most as often."""
    return Colony(iterations * 2 * (len(demands) - 1), ants, len(demands))


def score_path(demands: Array, capacity: float, ants: int, iterations: int) -> ScorePath:
    """Say which colony runs: the compiled one takes whole loads, as it keeps them in single precision."""
    loads = np.append(demands, capacity)
    whole = bool((loads == np.floor(loads)).all()) and loads.min() >= 0 and loads.max() <= LARGEST_LOAD
    return "fast" if whole and noise_for(colony_of(demands, ants, iterations)).agrees else "fallback"


def best_cost(
    distance: Array, demands: Array, capacity: float, matrix: Array, ants: int, iterations: int
) -> float:
    """Return the cost of the best path; InfeasibleAnswerError when the matrix gives no probabilities."""
    weights, rates = floored(matrix), (iterations, DECAY, PHEROMONE_FLOOR)
    if score_path(demands, capacity, ants, iterations) == "fast":
        noise, loads = noise_for(colony_of(demands, ants, iterations)), demands.astype(np.float32)
        cost = kernels.route(np.array(distance), loads, capacity, weights, noise.exact, noise.coarse, *rates)
    else:
        from search_to_signal.problems.ant_colony import fallback  # imports torch

        cost = fallback.route(distance, demands, capacity, weights, ants, *rates, GENERATOR_SEED)
    if math.isnan(cost):
        raise InfeasibleAnswerError("the matrix gives an ant no probabilities: not finite, or all zero")
    return cost
