"""Recorded scores of programs on the held-out TSP instances: found by program and split, and checked."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from search_to_signal.problems.base import heldout_splits
from search_to_signal.problems.known_heuristics import known_scores
from search_to_signal.problems.references import reference_file
from search_to_signal.problems.tsp import Tsp
from search_to_signal.records.heldout import ProgramScores

SPLITS = heldout_splits(Tsp())
SIZES = tuple(split.rpartition("_")[2] for split in SPLITS)
"""Their numbers of nodes."""


class ScoredProgram(Protocol):
    """A program that held-out scores are wanted of: its name for people, and the hash of its text."""

    @property
    def name(self) -> str: ...

    @property
    def sha256(self) -> str: ...


def scores_by_place(scores: Iterable[ProgramScores]) -> dict[tuple[str, str], ProgramScores]:
    """Return scores by the hash of the program's text and the split."""
    return {(scored.code_sha256, scored.split): scored for scored in scores}


def score_problems(wanted: Sequence[ScoredProgram], scores: Sequence[ProgramScores]) -> Iterator[str]:
    """Yield wanted programs without scores, scores of no such program, and scores that cannot be."""
    names = {(program.sha256, split): program.name for program in wanted for split in SPLITS}
    given = Counter((scored.code_sha256, scored.split) for scored in scores)
    shipped = scores_by_place(known_scores())
    for place, name in names.items():
        if place not in given and place not in shipped:
            yield f"{name} has no scores on {place[1]}: s2s standings makes them"
    for scored in scores:
        place = (scored.code_sha256, scored.split)
        where = f"program {scored.code_sha256[:12]} on {scored.split}"
        if place not in names or given[place] > 1:
            yield f"{where} is none of those that are wanted, or listed twice: s2s standings makes it anew"
        elif not _possible(scored):
            yield f"{where}: scores that no tours of these instances have: restore the file"


def _possible(scores: ProgramScores) -> bool:
    """Whether no tour is shorter than its instance's lower bound, and a failure has no scores."""
    bounds = [reference.lower_bound for reference in reference_file().splits[scores.split].instances]
    if not scores.scores:
        return scores.outcome.value != "valid"
    whole = scores.outcome.value == "valid" and len(scores.scores) == len(bounds)
    return whole and all(-score >= bound - 1e-9 for score, bound in zip(scores.scores, bounds, strict=True))
