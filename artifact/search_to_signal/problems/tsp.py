"""Travelling salesman by step-by-step construction: pick the next node until the tour is whole.

With it what its scores are compared with: heuristics of the field, and reference tours.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from search_to_signal.base.errors import ConfigError, DataHashError
from search_to_signal.base.settings import load_toml
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
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.records.reader import read_records

# Step-by-step TSP heuristics of the field, as programs written here from the published formulas.

FILE = Path(__file__).with_name("tsp_known_heuristics.toml")
SCORES = Path(__file__).with_name("tsp_known_scores.jsonl")


class Reported(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the source itself reports, on its own ``instances``: never to be compared with scores here.

    ``values`` are of 50, 100 and 200 nodes, or of the first of these: mean tour lengths in the unit square,
    or mean gaps in percent to the source's own reference (lower is better). ``of`` is whether they are of
    this program, or of the method that found it, over its runs.
    """

    unit: Literal["length", "gap"]
    values: tuple[float, ...]
    instances: str
    of: Literal["program", "method"]


class KnownHeuristic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One heuristic: its rule in words, the model that found it, its source, and our program of that rule.

    Without ``code`` it is the problem's own seed heuristic.
    """

    name: str
    idea: str
    found_with: str
    source: str
    reported: Reported
    code: str = ""

    @property
    def program(self) -> str:
        """The source text of ``select_next_node``."""
        return self.code.strip() + "\n" if self.code else Tsp.seed.code


class _HeuristicFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    heuristics: tuple[KnownHeuristic, ...]


@cache
def known_heuristics() -> tuple[KnownHeuristic, ...]:
    """The shipped heuristics, in the file's order."""
    return load_toml(FILE, _HeuristicFile).heuristics


@cache
def known_scores() -> tuple[ProgramScores, ...]:
    """Their scores on the held-out instances, made by ``tests/references/known_heuristics.py``."""
    return tuple(read_records(SCORES, ProgramScores))


# Reference tours of the held-out TSP instances, for optimality gaps; made by ``tests/references/tsp.py``.

REFERENCES_FILE = Path(__file__).with_name("tsp_references.json")


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The shortest known tour of an instance, node 0 first, and a length that no tour is below.

    ``pyvrp_length`` is that of the tour before it was polished.
    """

    tour: tuple[int, ...]
    length: float
    pyvrp_length: float
    lower_bound: float


class References(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The references of one split, and the hash of the distances that they belong to."""

    distances_sha256: str
    instances: tuple[Reference, ...]


class ReferenceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All splits with how they were made."""

    method: str
    versions: dict[str, str]
    seed: int
    splits: dict[str, References]


@cache
def reference_file() -> ReferenceFile:
    """The shipped file."""
    return msgspec.json.decode(REFERENCES_FILE.read_bytes(), type=ReferenceFile)


def reference_lengths(split: str) -> Array:
    """(instances,) lengths of the reference tours of a split.

    Raises ConfigError for a split without references, DataHashError where they are of other instances.
    """
    splits = reference_file().splits
    if split not in splits:
        raise ConfigError(f"there are no reference tours of tsp/{split}: choose one of {', '.join(splits)}")
    if splits[split].distances_sha256 != DISTANCES_SHA256[split]:
        raise DataHashError(
            f"the reference tours of tsp/{split} were made for other instances: make them again"
        )
    return np.array([reference.length for reference in splits[split].instances])


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
