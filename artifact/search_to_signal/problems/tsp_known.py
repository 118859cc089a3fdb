"""Step-by-step TSP heuristics of the field, and reference tours of the held-out TSP instances."""

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from search_to_signal.base.errors import ConfigError, DataHashError
from search_to_signal.base.settings import load_toml
from search_to_signal.problems.base import Array
from search_to_signal.problems.tsp import DISTANCES_SHA256, Tsp
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
