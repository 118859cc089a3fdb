"""Travelling salesman by step-by-step construction: pick the next node until the tour is whole."""

from types import MappingProxyType

import numpy as np

from search_to_signal.problems.base import Array, Heuristic, InfeasibleAnswerError, Instance
from search_to_signal.problems.data import check_sha256

TRAIN_COORDINATES_SHA256 = "bee6f8b6bf7f4678ddee62c4d77657c844c8d24a47a4304fae385c3c4b7e47e1"
TRAIN_DISTANCES_SHA256 = "12f9dc703dde4d51c6aa3f360d558898cdf425e052547db9c6c083875d3cd947"

_TEMPLATE = """import numpy as np

def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):
    return next_node
"""

_SEED = """import numpy as np

def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):
    scores = {}
    for node in unvisited_nodes:
        others = [distance_matrix[node][i] for i in unvisited_nodes if i != node]
        scores[node] = (
            0.4 * distance_matrix[current_node][node]
            - 0.3 * np.mean(others)
            + 0.2 * np.std(others)
            - 0.1 * distance_matrix[destination_node][node]
        )
    return min(scores, key=scores.get)
"""


def distances(coordinates: Array) -> Array:
    """Euclidean distance matrices (N, n, n) of coordinates (N, n, 2), float64."""
    delta = coordinates[:, :, None, :] - coordinates[:, None, :, :]
    out: Array = np.sqrt((delta**2).sum(axis=-1))
    return out


def tour_length(distance: Array, tour: Array) -> float:
    """Length of a closed tour, edges added in visiting order as distance[new, previous]."""
    total = 0.0
    for previous, new in zip(tour, (*tour[1:], tour[0]), strict=True):
        total += float(distance[new, previous])
    return total


class Tsp:
    """CALM's TSP: start at node 0, visit every node once, return; score is minus the tour length."""

    name = "tsp"
    title = "Travelling Salesman Problem"
    description = (
        "Build a short closed tour through all nodes. Starting at node 0, a function is called again and "
        "again to choose which unvisited node to go to next, until every node has been visited and the "
        "tour returns to its start."
    )
    unit = "tour length"
    function_name = "select_next_node"
    template = _TEMPLATE
    seed = Heuristic(
        idea=(
            "The idea of the algorithm is to weigh the distance to each unvisited node against the mean and "
            "spread of its distances to the others and its distance from the destination."
        ),
        code=_SEED,
    )
    dialogue = "tour"

    def instances(self, split: str) -> tuple[Instance, ...]:
        """Return the instances of ``train`` (64 x 50 nodes) or ``embedded`` (16 x 30 nodes)."""
        coordinates = _COORDINATES[split]()
        matrices = distances(coordinates)
        if split == "train":
            check_sha256("tsp/train distances", matrices, TRAIN_DISTANCES_SHA256)
        return tuple(MappingProxyType({"distance": matrix}) for matrix in matrices)

    def score(self, instance: Instance, answer: Array) -> float:
        """Return minus the length of the tour ``answer`` (node 0 first); raises InfeasibleAnswerError."""
        distance = instance["distance"]
        if sorted(answer.tolist()) != list(range(len(distance))) or answer[0] != 0:
            raise InfeasibleAnswerError("the tour does not visit every node exactly once from node 0")
        return -tour_length(distance, answer)


def _train() -> Array:
    coordinates = np.random.RandomState(1234).rand(64, 50, 2)
    check_sha256("tsp/train coordinates", coordinates, TRAIN_COORDINATES_SHA256)
    return coordinates


def _embedded() -> Array:
    return np.random.RandomState(2027).rand(16, 30, 2)


_COORDINATES = {"train": _train, "embedded": _embedded}
