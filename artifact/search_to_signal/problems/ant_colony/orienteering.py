"""The colony of OP."""

import numpy as np

from search_to_signal.problems.ant_colony import kernels
from search_to_signal.problems.ant_colony.floor import floored
from search_to_signal.problems.ant_colony.noise import noise_for
from search_to_signal.problems.base import Array

DECAY = 0.9


def best_prize(
    prize: Array, distance: Array, maxlen: float, matrix: Array, ants: int, iterations: int
) -> float:
    """Return the largest prize sum of a path; non-finite probabilities count as zero."""
    n = len(prize)
    noise = noise_for(iterations * n, ants, n + 1)
    highest = kernels.orient(
        np.array(prize),
        np.array(distance),
        maxlen,
        floored(matrix),
        noise.exact,
        noise.coarse,
        iterations,
        DECAY,
    )
    return float(highest)
