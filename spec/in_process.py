"""Run a program of our own against a problem in this process, with the host's calling convention.

Nothing here protects against the program. The isolated evaluation must give the same scores.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np

from search_to_signal.problems.base import (
    Array,
    InfeasibleAnswerError,
    Instance,
    MatrixProblem,
    Problem,
    StreamProblem,
)
from search_to_signal.sandbox.loading import Function, Program


def run_in_process(problem: Problem, program: str | Function, split: str) -> list[float]:
    """Score a program on every instance of a split; higher is better.

    Source text starts afresh for each instance; a function is called as it is, with what it keeps. Raises
    InfeasibleAnswerError for an answer that is no solution, and whatever the program raises.
    """
    return evaluate_in_process(problem, program, problem.instances(split))


def evaluate_in_process(
    problem: Problem, program: str | Function, instances: Sequence[Instance]
) -> list[float]:
    """Score a program on these instances, as ``run_in_process`` does."""
    fresh = Program(program).fresh if isinstance(program, str) else lambda: program
    return [_RUNNERS[problem.dialogue](problem, fresh(), instance) for instance in instances]


def _tour(problem: Problem, function: Function, instance: Instance) -> float:
    return problem.score(instance, build_tour(function, instance["distance"]))


def build_tour(function: Function, distance: Array) -> Array:
    """Ask for one node after another; -1 stands for the last unvisited one, every argument is fresh."""
    tour, unvisited = [0], list(range(1, len(distance)))
    while unvisited:
        node = int(function(tour[-1], 0, set(unvisited), distance.copy()))
        node = unvisited[-1] if node == -1 else node
        try:
            unvisited.remove(node)
        except ValueError as error:
            raise InfeasibleAnswerError(f"node {node} is not unvisited") from error
        tour.append(node)
    return np.array(tour)


def _stream(problem: Problem, function: Function, instance: Instance) -> float:
    stream = cast(StreamProblem, problem).open(instance)
    while not stream.done:
        stream.decide(int(np.argmax(function(*stream.question()))))
    return stream.score()


def _matrix(problem: Problem, function: Function, instance: Instance) -> float:
    arguments = cast(MatrixProblem, problem).arguments(instance, function.__code__.co_argcount)
    return problem.score(instance, function(*arguments))


_RUNNERS = {"tour": _tour, "stream": _stream, "matrix": _matrix}
