"""Travelling salesman by step-by-step construction: pick the next node until the tour is whole."""

from collections.abc import Callable

import numpy as np

from search_to_signal.problems.base import (
    Array,
    Dialogue,
    Heuristic,
    InfeasibleAnswerError,
    Instance,
    check_sha256,
    euclidean,
    frozen_instance,
    split_of,
    unit_square,
)

COORDINATES_SHA256 = {
    "train": "bee6f8b6bf7f4678ddee62c4d77657c844c8d24a47a4304fae385c3c4b7e47e1",
    "heldout_50": "5085dcda67e4e7ff752e2772a50fc90c92c7a2dd231e7c3fab1ed1bf654f59f4",
    "heldout_100": "54a6ed8bba470349cb2822024512061b46477d3c32e8380e1eeae82e44050c62",
    "heldout_200": "20836553107110fe612633748432e615ede1650005bcf4adbde976c6e9239957",
    "embedded": "02e0cff9e3b4d125b8ba3ea00d427f675bebb13e2ecd8e2a4d856694ba350c01",
}
DISTANCES_SHA256 = {
    "train": "12f9dc703dde4d51c6aa3f360d558898cdf425e052547db9c6c083875d3cd947",
    "heldout_50": "bd8f9eee117bf81ac09eef67102f4197506767f91fd67bda13feecfd8c4d663c",
    "heldout_100": "041dd1f7223c6c7b366556194c385fb7d6091256223b967354dba0ea1f92e4d2",
    "heldout_200": "f72200698a71201d18624653be544fb58e2130dc7a4e37d8ad58d48b7b8ff488",
    "embedded": "550baf601d6b0e4d6b259f0fff3fb3312a6c4b8c49a736d9c608794ce1da0b50",
}

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


def tour_length(distance: Array, tour: Array) -> float:
    """Length of a closed tour, edges added in visiting order as distance[new, previous]."""
    total = 0.0
    for edge in distance[np.roll(tour, -1), tour].tolist():
        total += edge
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
    statement = (
        "A closed tour starts at a node, visits every other node exactly once and returns. Built node by "
        "node, it should be as short as possible."
    )
    unit = "tour length"
    maximized = False
    template = _TEMPLATE
    seed = Heuristic(
        idea=(
            "The idea of the algorithm is to weigh the distance to each unvisited node against the mean and "
            "spread of its distances to the others and its distance from the destination."
        ),
        code=_SEED,
    )
    dialogue: Dialogue = "tour"
    splits: tuple[str, ...] = tuple(COORDINATES_SHA256)

    def instances(self, split: str) -> tuple[Instance, ...]:
        """Return ``distance`` (n, n) of every instance.

        ``train`` has 64 instances of 50 nodes, ``heldout_50``, ``heldout_100`` and ``heldout_200`` 64 of
        that size, ``embedded`` 16 of 30.
        """
        matrices = euclidean(self.coordinates(split))
        check_sha256(f"tsp/{split} distances", matrices, DISTANCES_SHA256[split])
        return tuple(frozen_instance(distance=matrix) for matrix in matrices)

    def coordinates(self, split: str) -> Array:
        """Return (instances, n, 2) positions of the nodes in the unit square, for pictures.

        Raises as ``instances`` does.
        """
        coordinates: Array = split_of(self.name, _SPLITS, split)
        check_sha256(f"tsp/{split} coordinates", coordinates, COORDINATES_SHA256[split])
        return coordinates

    def score(self, instance: Instance, answer: Array) -> float:
        """Return minus the length of the tour ``answer`` (node 0 first); raises InfeasibleAnswerError."""
        distance = instance["distance"]
        whole = answer.dtype.kind in "iu" and answer.shape == (len(distance),)
        if not whole or answer[0] != 0 or sorted(answer.tolist()) != list(range(len(distance))):
            raise InfeasibleAnswerError("the tour does not visit every node exactly once from node 0")
        return -tour_length(distance, answer)


_SPLITS: dict[str, Callable[[], Array]] = {
    "train": lambda: unit_square(1234, 64, 50),
    "heldout_50": lambda: unit_square(4321, 64, 50),
    "heldout_100": lambda: unit_square(4321, 64, 100),
    "heldout_200": lambda: unit_square(4321, 64, 200),
    "embedded": lambda: unit_square(2027, 16, 30),
}
