"""Step-by-step TSP heuristics of the field, as programs written here from the published formulas."""

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from search_to_signal.config import load_toml
from search_to_signal.problems.tsp import Tsp
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.records.reader import read_records

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
