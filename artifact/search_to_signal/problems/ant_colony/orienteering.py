"""The colony of OP."""

import math

import numpy as np

from search_to_signal.problems.ant_colony import kernels
from search_to_signal.problems.ant_colony.floor import floored
from search_to_signal.problems.ant_colony.noise import GENERATOR_SEED, Colony, noise_for
from search_to_signal.problems.base import Array, InfeasibleAnswerError, ScorePath

DECAY = 0.9


def colony_of(nodes: int, ants: int, iterations: int) -> Colony:
    """A path visits every node at most once; a further node is where finished ants stay."""
    return Colony(iterations * nodes, ants, nodes + 1)


def score_path(nodes: int, ants: int, iterations: int) -> ScorePath:
    """Say which colony runs: the compiled one wherever torch was found to agree with it."""
    return "fast" if noise_for(colony_of(nodes, ants, iterations)).agrees else "fallback"


def best_prize(
    prize: Array, distance: Array, maxlen: float, matrix: Array, ants: int, iterations: int
) -> float:
    """Return the largest prize sum of a path; weights that are not finite count as zero.

    Raises InfeasibleAnswerError when an ant that could go on finds no positive weight: there the host's torch
    refuses to write its uniform fallback, of single precision, into double precision.
    """
    weights, rates = floored(matrix), (iterations, DECAY)
    if score_path(len(prize), ants, iterations) == "fast":
        noise, ways = noise_for(colony_of(len(prize), ants, iterations)), np.array(distance)
        collected = kernels.orient(np.array(prize), ways, maxlen, weights, noise.exact, noise.coarse, *rates)
    else:
        from search_to_signal.problems.ant_colony import fallback  # imports torch

        collected = fallback.orient(prize, distance, maxlen, weights, ants, *rates, GENERATOR_SEED)
    if math.isnan(collected):
        raise InfeasibleAnswerError("the matrix gives an ant no probabilities: nothing it may go to weighs")
    return collected
