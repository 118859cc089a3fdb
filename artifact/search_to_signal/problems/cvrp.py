"""Capacitated vehicle routing by an ant colony whose heuristic matrix is searched for."""

from collections.abc import Callable
from typing import Any

import numpy as np

from search_to_signal.problems.base import (
    Array,
    Dialogue,
    Heuristic,
    InfeasibleAnswerError,
    Instance,
    ScorePath,
    as_matrix,
    check_sha256,
    euclidean,
    frozen_instance,
    split_of,
)

DATA_SHA256 = {
    "train": "bf14c305949cda18019e0d8014d586bfe9bb9fb12b80051125a17097bf2bda36",
    "heldout": "917b7dc02343daa94d0419fdc0935f369b87dae60f5b64ff91fa95252e68045c",
    "embedded": "3ba1faf030b2a1a9a16c498754e526245c8550b6c0b83443558e38d47645df52",
}
DISTANCES_SHA256 = {
    "train": "f087d4a4acae3e5846d3796a083815e4e352fd399d1f1512484b687a452e0412",
    "heldout": "eb6fb85ca71f6ce486bd9cc8a3579982f5eb7543e37204ef491117b3be60648e",
    "embedded": "86251db0c196759f43523a62c7d84c04fbbffba97b4d7b8a869b29285e467abc",
}
CAPACITY = 50
ANTS = 30
ITERATIONS = 100

_TEMPLATE = """import numpy as np

def heuristics(distance_matrix, coordinates, demands, capacity):
    return heuristic_matrix
"""

_SEED = """import numpy as np

def heuristics(distance_matrix, coordinates, demands, capacity):
    return 1 / distance_matrix
"""


class Cvrp:
    """CALM's CVRP: minus the cost of the best tour that 30 ants find in 100 iterations."""

    name = "cvrp"
    title = "Capacitated Vehicle Routing Problem"
    description = (
        "Vehicles of equal capacity start and end at a depot and together serve the demand of every "
        "customer; the total distance should be small. An ant colony builds the routes. A function is "
        "called once per instance with the distances, coordinates, demands and the capacity, and returns a "
        "matrix that says how promising it is to go from one node (row) to another (column); ants follow "
        "its entries times a pheromone that rewards the edges of good routes."
    )
    statement = (
        "Vehicles of equal capacity start and end at a depot and together serve the demand of every "
        "customer. An ant colony builds the routes, led by a matrix of how promising each move is; the total "
        "distance should be as small as possible."
    )
    unit = "total distance"
    maximized = False
    template = _TEMPLATE
    seed = Heuristic(
        idea="The idea of the algorithm is to prefer near nodes, each by the inverse of its distance.",
        code=_SEED,
    )
    dialogue: Dialogue = "matrix"
    reads_rows = True
    splits: tuple[str, ...] = ("train", "heldout", "embedded")

    def instances(self, split: str) -> tuple[Instance, ...]:
        """Return ``distance`` (n, n), ``coordinates`` (n, 2), ``demands`` (n,) and ``capacity`` ().

        Node 0 is the depot; the diagonal of the distances is 1. ``train`` and ``heldout`` have 10
        instances of n = 51, ``embedded`` 4 of n = 21.
        """
        data: Array = split_of(self.name, _SPLITS, split)
        coordinates = data[:, :, 1:]
        matrices = euclidean(coordinates)
        diagonal = np.arange(coordinates.shape[1])
        matrices[:, diagonal, diagonal] = 1.0
        check_sha256(f"cvrp/{split} nodes", data, DATA_SHA256[split])
        check_sha256(f"cvrp/{split} distances", matrices, DISTANCES_SHA256[split])
        return tuple(
            frozen_instance(
                distance=matrix, coordinates=nodes[:, 1:], demands=nodes[:, 0], capacity=np.array(CAPACITY)
            )
            for nodes, matrix in zip(data, matrices, strict=True)
        )

    def arguments(self, instance: Instance, parameters: int) -> tuple[Any, ...]:
        """Return (distances, coordinates, demands, capacity), or (distances, demands / capacity) for two."""
        distance, demands, capacity = instance["distance"], instance["demands"], int(instance["capacity"])
        if parameters == 4:
            return distance.copy(), instance["coordinates"].copy(), demands.copy(), capacity
        if parameters == 2:
            return distance.copy(), demands / capacity
        raise InfeasibleAnswerError(f"expected a function of 4 or 2 parameters, found {parameters}")

    def answer_shape(self, instance: Instance) -> tuple[int, ...]:
        return instance["distance"].shape

    def score(self, instance: Instance, answer: Array) -> float:
        """Return minus the cost of the colony's best tour with the matrix ``answer`` (n, n).

        The ants take rows by index, so (n, 1) serves as n equal columns, and rows beyond n are never seen
        (HOST.md, point 24). Raises InfeasibleAnswerError for another shape or a matrix that gives no
        probabilities.
        """
        from search_to_signal.problems.ant_colony import colonies  # numba takes a second to import

        matrix = as_matrix(answer, self.answer_shape(instance), by_rows=True)
        demands, capacity = instance["demands"], float(instance["capacity"])
        return -colonies.best_cost(instance["distance"], demands, capacity, matrix, ANTS, ITERATIONS)

    def score_path(self, instance: Instance, answer: Array) -> ScorePath:
        """Say whether the compiled colony gives this score, or the slower one, for broken loads."""
        from search_to_signal.problems.ant_colony import colonies  # numba takes a second to import

        return colonies.score_path(instance["demands"], float(instance["capacity"]))


def _draw(seed: int, count: int, customers: int) -> Array:
    rng, drawn = np.random.RandomState(seed), []
    for _ in range(count):
        places, demands = rng.rand(customers, 2), rng.randint(1, 10, size=customers)
        drawn.append(np.vstack([[0.0, 0.5, 0.5], np.column_stack([demands, places])]))
    return np.stack(drawn)


_SPLITS: dict[str, Callable[[], Array]] = {
    "train": lambda: _draw(1234, 10, 50),
    "heldout": lambda: _draw(4321, 10, 50),
    "embedded": lambda: _draw(2027, 4, 20),
}
