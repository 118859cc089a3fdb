"""Orienteering by an ant colony whose heuristic matrix is searched for."""

from collections.abc import Callable
from typing import Any

import numpy as np

from search_to_signal.problems.base import (
    Array,
    Dialogue,
    Heuristic,
    Instance,
    ScorePath,
    as_matrix,
    check_sha256,
    frozen_instance,
    split_of,
    unit_square,
)

COORDINATES_SHA256 = {
    "train": "baa21790ef499def93f1c07ddfcd011170429318b635f99d6ddf04597e1165c5",
    "heldout": "4331b5d41fd5055ff3fce9a097fa41a9fcd6e2892c66b661f60ecc6f1cba0254",
    "embedded": "d343e4af78b8af49f8859c366dd5ec64b22d1aca131e72efb2f7f78dcda63b70",
}
DISTANCES_SHA256 = {
    "train": "4b70e12eafaeae3619367803d056b3d3cda3890f92af2c1df0651e6e740c68ee",
    "heldout": "c3bfbf65a484e8c77976ba45242b257f565f0995ce7687fff9b793e0c33772c8",
    "embedded": "7bb80af08ef8c194a2162f120dc4f02b39fcdd1b600c8babd87545cdb31ac3d3",
}
PRIZES_SHA256 = {
    "train": "5c62a8bdb09c8dd71c83e7426845adbaa7f9bd03f1f7f133f9920ac8d062a6a1",
    "heldout": "f8bcac517b29c4c800d423ce6cce3de4edbde6b855be3f6cc555b4e9e5921e56",
    "embedded": "a94382d3cb54f38de76d89806c40f7d8176d73fb3e843f7573035e922e7f0aaf",
}
MAX_LENGTH = {"train": 3.0, "heldout": 3.0, "embedded": 2.0}
FORBIDDEN = 1e9
ANTS = 20
ITERATIONS = 50

_TEMPLATE = """import numpy as np

def heuristics(prize, distance, maxlen):
    return heuristic_matrix
"""

_SEED = """import numpy as np

def heuristics(prize, distance, maxlen):
    return prize[np.newaxis, :] / distance
"""


class Op:
    """CALM's OP: the largest prize sum that 20 ants collect in 50 iterations."""

    name = "op"
    title = "Orienteering Problem"
    description = (
        "Every node carries a prize. Starting from a depot, visit some of the nodes and return, with a path "
        "no longer than a given limit, so that the prizes of the visited nodes sum to as much as possible. "
        "An ant colony builds the paths. A function is called once per instance with the prizes, the "
        "distances and the limit, and returns a matrix that says how promising it is to go from one node "
        "(row) to another (column); ants follow its entries times a pheromone that rewards good paths."
    )
    statement = (
        "A tour from a depot and back within a length limit collects the prizes of the nodes that it visits. "
        "An ant colony builds it, led by a matrix of how promising each move is; the prize sum should be as "
        "large as possible."
    )
    unit = "collected prize"
    maximized = True
    template = _TEMPLATE
    seed = Heuristic(
        idea=(
            "The idea of the algorithm is to prefer nodes that promise much prize for the way, each by its "
            "prize divided by its distance."
        ),
        code=_SEED,
    )
    dialogue: Dialogue = "matrix"
    splits: tuple[str, ...] = ("train", "heldout", "embedded")

    def instances(self, split: str) -> tuple[Instance, ...]:
        """Return ``prize`` (n,), ``distance`` (n, n) with diagonal 1e9, ``maxlen`` ().

        Node 0 is the depot. ``train`` and ``heldout`` have 5 instances of n = 50 and limit 3,
        ``embedded`` 4 of n = 20 and limit 2.
        """
        coordinates: Array = split_of(self.name, _SPLITS, split)
        matrices = fused_euclidean(coordinates)
        prizes = depot_prizes(matrices[:, 0])
        diagonal = np.arange(coordinates.shape[1])
        matrices[:, diagonal, diagonal] = FORBIDDEN
        check_sha256(f"op/{split} coordinates", coordinates, COORDINATES_SHA256[split])
        check_sha256(f"op/{split} distances", matrices, DISTANCES_SHA256[split])
        check_sha256(f"op/{split} prizes", prizes, PRIZES_SHA256[split])
        limit = np.array(MAX_LENGTH[split])
        return tuple(
            frozen_instance(prize=prize, distance=matrix, maxlen=limit)
            for prize, matrix in zip(prizes, matrices, strict=True)
        )

    def arguments(self, instance: Instance, parameters: int) -> tuple[Any, ...]:
        """Return (prizes, distances, limit) whatever the number of parameters, as the host calls it."""
        return instance["prize"].copy(), instance["distance"].copy(), float(instance["maxlen"])

    def answer_shape(self, instance: Instance) -> tuple[int, ...]:
        return instance["distance"].shape

    def score(self, instance: Instance, answer: Array) -> float:
        """Return the colony's largest prize sum with the matrix ``answer`` (n, n).

        Entries that are not finite count as zero. Raises InfeasibleAnswerError for another shape, for no real
        numbers, and when an ant that could go on finds no positive weight.
        """
        from search_to_signal.problems.ant_colony import colonies  # numba takes a second to import

        matrix = as_matrix(answer, self.answer_shape(instance))
        prize, distance, limit = instance["prize"], instance["distance"], float(instance["maxlen"])
        return colonies.best_prize(prize, distance, limit, matrix, ANTS, ITERATIONS)

    def score_path(self, instance: Instance, answer: Array) -> ScorePath:
        """The compiled colony gives every score."""
        return "fast"


def depot_prizes(from_depot: Array) -> Array:
    """Prizes (N, n) in (0, 1] that grow with the distance (N, n) from the depot, in steps of about 1/100."""
    steps = 1 + np.floor(99 * from_depot / from_depot.max(axis=1, keepdims=True))
    prizes: Array = steps / steps.max(axis=1, keepdims=True)
    return prizes


def fused_euclidean(coordinates: Array) -> Array:
    """Distance matrices (N, n, n) with the bits of torch.norm: sqrt(dy * dy + dx * dx), dy * dy not rounded.

    The fused multiply-add is made of error-free transformations (Dekker's product, Knuth's sum).
    """
    delta = coordinates[:, :, None, :] - coordinates[:, None, :, :]
    dx, dy = delta[..., 0], delta[..., 1]
    square, dx_square = dy * dy, dx * dx
    total = square + dx_square
    kept = total - square
    lost = (square - (total - kept)) + (dx_square - kept)
    out: Array = np.sqrt(total + (lost + _square_error(dy, square)))
    return out


def _square_error(x: Array, square: Array) -> Array:
    shifted = 134217729.0 * x  # 2**27 + 1 splits a float64 in two halves
    high = shifted - (shifted - x)
    low = x - high
    error: Array = ((high * high - square) + 2 * high * low) + low * low
    return error


_SPLITS: dict[str, Callable[[], Array]] = {
    "train": lambda: unit_square(1234, 5, 50),
    "heldout": lambda: unit_square(4321, 5, 50),
    "embedded": lambda: unit_square(2027, 4, 20),
}
