"""The worker's side of each dialogue: call the heuristic as the host does, answer with decisions only."""

from collections.abc import Callable
from typing import Any

import numpy as np

from search_to_signal.evaluation.frames import Array

Function = Callable[..., Any]


class DecisionError(Exception):
    """The heuristic named something that cannot be chosen."""


class OutputError(Exception):
    """The heuristic returned something of another kind than its task asks for."""


def build_tour(function: Function, distance: Array) -> bytes:
    """Visit all nodes from node 0 as the host does; the tour as int64, shape (n,).

    Every call gets a fresh set built from the ascending unvisited nodes and a fresh copy of the matrix;
    -1 stands for the last unvisited node. Raises DecisionError for a node that is not unvisited.
    """
    unvisited = list(range(1, len(distance)))
    tour = [0]
    while unvisited:
        node = int(function(tour[-1], 0, set(unvisited), distance.copy()))
        if node == -1:
            node = unvisited[-1]
        if node not in unvisited:
            raise DecisionError(f"step {len(tour)}: the answer is no unvisited node")
        unvisited.remove(node)
        tour.append(node)
    return np.array(tour, dtype="<i8").tobytes()
