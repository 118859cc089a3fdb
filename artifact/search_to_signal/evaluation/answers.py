"""The worker's side of each dialogue: call the heuristic as the host does, answer with decisions only."""

from collections.abc import Sequence

import numpy as np

from search_to_signal.evaluation.wire_format import DTYPES, Argument, Array
from search_to_signal.numerics import read_by_rows
from search_to_signal.programs.loading import Function


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


def choose(function: Function, arguments: Sequence[Argument]) -> int:
    """Index of the first maximum of the returned priorities; a NaN counts as one, as in numpy."""
    return int(np.argmax(function(*arguments)))


def fill_matrix(
    function: Function, shape: tuple[int, ...], arguments: Sequence[Argument], by_rows: bool = False
) -> tuple[int, bytes]:
    """Call once; the matrix with the number of its element type, which is kept.

    ``by_rows`` takes what is that matrix to a reader of rows (``read_by_rows``). Raises OutputError when the
    answer is no numpy array of that shape and of a known type.
    """
    answer = function(*arguments)
    if not isinstance(answer, np.ndarray):
        raise OutputError(f"the answer is no array of shape {shape}")
    matrix = np.asarray(answer, dtype=answer.dtype.newbyteorder("="))
    if by_rows:
        matrix = read_by_rows(matrix, shape)
    if matrix.shape != shape:
        raise OutputError(f"the answer has shape {matrix.shape}, expected {shape}")
    if matrix.dtype.str not in DTYPES:
        raise OutputError(f"the answer has elements of type {matrix.dtype}")
    return DTYPES.index(matrix.dtype.str), matrix.tobytes()
