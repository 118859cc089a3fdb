"""The colony of CVRP."""

import numpy as np

from search_to_signal.problems.ant_colony import kernels
from search_to_signal.problems.ant_colony.floor import floored
from search_to_signal.problems.ant_colony.noise import noise_for
from search_to_signal.problems.base import Array, InfeasibleAnswerError

DECAY = 0.9
PHEROMONE_FLOOR = 1e-10


def best_cost(
    distance: Array, demands: Array, capacity: float, matrix: Array, ants: int, iterations: int
) -> float:
    """Return the cost of the best path; InfeasibleAnswerError when the matrix gives no probabilities."""
    n = len(demands)
    noise = noise_for(iterations * 2 * (n - 1), ants, n)
    cost, status = kernels.route(
        np.array(distance),
        demands.astype(np.float32),
        capacity,
        floored(matrix),
        noise.exact,
        noise.coarse,
        iterations,
        DECAY,
        PHEROMONE_FLOOR,
    )
    if status != kernels.FINISHED:
        raise InfeasibleAnswerError(
            "the heuristic matrix gives an ant no probabilities: not finite, or all zero"
        )
    return float(cost)
