"""Reference tours of the held-out TSP instances, for optimality gaps; made by ``tests/references/tsp.py``."""

from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from search_to_signal.errors import ConfigError, DataHashError
from search_to_signal.problems.base import Array
from search_to_signal.problems.tsp import DISTANCES_SHA256

FILE = Path(__file__).with_name("tsp_references.json")


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
    return msgspec.json.decode(FILE.read_bytes(), type=ReferenceFile)


def reference_lengths(split: str) -> Array:
    """(instances,) lengths of the reference tours of a split.

    Raises ConfigError for a split without references, DataHashError where they are of other instances.
    """
    splits = reference_file().splits
    if split not in splits:
        raise ConfigError(f"there are no reference tours of tsp/{split}: choose one of {', '.join(splits)}")
    if splits[split].distances_sha256 != DISTANCES_SHA256[split]:
        raise DataHashError(f"the reference tours of tsp/{split} are of other instances: make them again")
    return np.array([reference.length for reference in splits[split].instances])
