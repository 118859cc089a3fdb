"""One-step parent exposure (D13): how likely the next prompt is to build on a candidate, if inserted.

The chance that the candidate is the only or first parent, or the second parent of a crossover, under the
operator weights, the first-fill rule and the rejection of unusable pairs, out of the distributions in
selection. A collapse before the next prompt is left out.
"""

from collections.abc import Sequence

import numpy as np

from search_to_signal.hosts.calm.ideas import idea_distance, words_of
from search_to_signal.hosts.calm.operators import CROSSOVER, OPERATORS, operator_probabilities
from search_to_signal.hosts.calm.selection import Vector, crossover_chance, primary
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState, holds
from search_to_signal.search.archive import scores
from search_to_signal.search.evaluated import Evaluated
from search_to_signal.search.member import Member


def _member(result: Evaluated) -> Member:
    score = np.nan if result.score is None else result.score
    return Member(result.idea, result.code, score, operator=None, step=0, index=0, id="")


def _inserted_distances(state: SearchState, base: Vector, candidate: Member, position: int) -> Vector:
    """(head, n + 1) distances to the head after insertion, from those to the head before, (head, n)."""
    words = words_of(candidate.idea)
    to_candidate = [idea_distance(words, words_of(first.idea)) for first in state.archive[: len(base)]]
    rows = np.insert(base, position, to_candidate, axis=1)
    if position > len(base):
        return rows
    own = np.insert(state.distances(candidate), position, 0.0)
    return np.insert(rows, position, own, axis=0)


def _parent_chance(
    state: SearchState, archived: Vector, base: Vector, candidate: Member, settings: SearchSettings
) -> float:
    position = int((archived > candidate.score).sum())
    after = np.insert(archived, position, candidate.score)
    head = primary(len(after), settings)
    distances = _inserted_distances(state, base, candidate, position)[: len(head)]
    crossing = crossover_chance(after[: len(head)], distances, position)
    alone = head[position] if position < len(head) else 0.0
    operators = operator_probabilities(len(after), settings)
    chances = [crossing if operator == CROSSOVER else alone for operator in OPERATORS]
    return float(operators @ chances)


def exposures(
    state: SearchState, results: Sequence[Evaluated], settings: SearchSettings, *, unconditional: bool = False
) -> tuple[float | None, ...]:
    """Exact exposure of each valid completion, inserted alone into the listed state of the draw.

    In [0, 1]; None for an invalid completion, and 0 for one that would not be admitted unless
    ``unconditional`` (alternative of D13).
    """
    archived = scores(state.archive)
    firsts = state.archive[: settings.population_size]
    base = np.array([state.distances(first) for first in firsts]).reshape(len(firsts), len(archived))

    def exposure(result: Evaluated) -> float | None:
        if result.score is None:
            return None
        if not unconditional and holds(archived, result.score):
            return 0.0
        return _parent_chance(state, archived, base, _member(result), settings)

    return tuple(exposure(result) for result in results)
