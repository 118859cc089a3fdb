"""What CALM's search remembers between rounds. Everything here is frozen; a round makes a new state.

Scores are higher-is-better.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from search_to_signal.hosts.calm.ideas import Ideas, ideas_of, words_of
from search_to_signal.search.member import Member

EQUAL_WITHIN = 1e-7
"""Scores nearer than this are one heuristic's (HOST.md, point 6)."""


@dataclass(frozen=True)
class SearchState:
    """The search between two rounds.

    ``archive`` is in the order of its last listing, new members last; ``ideas`` are its word sets in the
    same order, so an archive is changed through the methods here. ``used_prompts`` are those of the round
    in progress (HOST.md, point 12). ``injected`` are the components in order of appearance. ``stagnation``
    counts rounds without a new best (HOST.md, point 13).
    """

    archive: tuple[Member, ...]
    seeds: tuple[Member, ...]
    ideas: Ideas
    used_prompts: frozenset[str] = frozenset()
    injected: tuple[str, ...] = ()
    stagnation: int = 0

    def extended(self, new: Sequence[Member]) -> "SearchState":
        """With new members at the end of the listing."""
        ideas = self.ideas.extended([words_of(member.idea) for member in new])
        return replace(self, archive=(*self.archive, *new), ideas=ideas)

    def listed(self) -> "SearchState":
        """Listed best first; exact ties in reverse order of the previous listing (HOST.md, point 8)."""
        scores = np.array([member.score for member in self.archive])
        order = np.argsort(scores, kind="stable")[::-1]
        return replace(self, archive=tuple(self.archive[i] for i in order), ideas=self.ideas.taken(order))

    def distances(self, member: Member) -> NDArray[np.float64]:
        """(n,) distance of every archived idea to that of ``member`` as first parent, in listing order."""
        return self.ideas.distances(words_of(member.idea))


def state_of(members: Sequence[Member], seeds: Sequence[Member]) -> SearchState:
    """A state with these archive members, listed as given, and these seed members."""
    ideas = ideas_of([words_of(member.idea) for member in members])
    return SearchState(archive=tuple(members), seeds=tuple(seeds), ideas=ideas)


def initial_state(seed: Member) -> SearchState:
    """The state before the first round: the seed heuristic alone."""
    return state_of((seed,), (seed,))


def equal(first: float, second: float) -> bool:
    """Whether two heuristics with these scores count as one."""
    return abs(first - second) < EQUAL_WITHIN


def holds(archived: NDArray[np.float64], score: float) -> bool:
    """Whether one of the archived scores, (n,), is equal to a score."""
    return bool((np.abs(archived - score) < EQUAL_WITHIN).any())


def bases(archive: Sequence[Member], parents: Sequence[Member]) -> tuple[Member, ...]:
    """The members, as listed, whose stripped code a prompt with these parents shows (HOST.md, Prompts)."""
    shown = {parent.code.strip() for parent in parents}
    return tuple(member for member in archive if member.code.strip() in shown)
