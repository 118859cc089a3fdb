"""What the search remembers between rounds. Everything here is frozen; a round makes a new state."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from search_to_signal.problems.base import Heuristic
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.records.schema import HeuristicRecord, Operator
from search_to_signal.search.ideas import Ideas, ideas_of

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Member:
    """An archived heuristic (HOST.md, point 7). ``score`` is higher-is-better; seeds have no operator.

    ``step`` and ``index`` say which completion it came from, ``id`` is the hash of its canonical code.
    """

    idea: str
    code: str
    score: float
    operator: Operator | None
    step: int
    index: int
    id: str

    @cached_property
    def words(self) -> frozenset[str]:
        """The distinct lower-cased words of the idea (HOST.md, point 11)."""
        return frozenset(_WORD.findall(self.idea.lower()))


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
        ideas = self.ideas.extended([member.words for member in new])
        return replace(self, archive=(*self.archive, *new), ideas=ideas)

    def listed(self) -> "SearchState":
        """Listed best first; exact ties in reverse order of the previous listing (HOST.md, point 8)."""
        scores = np.array([member.score for member in self.archive])
        order = np.argsort(scores, kind="stable")[::-1]
        return replace(self, archive=tuple(self.archive[i] for i in order), ideas=self.ideas.taken(order))

    def distances(self, member: Member) -> NDArray[np.float64]:
        """(n,) distance of every archived idea to that of ``member`` as first parent, in listing order."""
        return self.ideas.distances(member.words)


def state_of(members: Sequence[Member], seeds: Sequence[Member]) -> SearchState:
    """A state with these archive members, listed as given, and these seed members."""
    ideas = ideas_of([member.words for member in members])
    return SearchState(archive=tuple(members), seeds=tuple(seeds), ideas=ideas)


def seed_member(seed: Heuristic, score: float) -> Member:
    """A problem's seed heuristic with its score."""
    return Member(seed.idea, seed.code, score, None, step=0, index=0, id=program_sha256(seed.code))


def initial_state(seed: Member) -> SearchState:
    """The state before the first round: the seed heuristic alone."""
    return state_of((seed,), (seed,))


def given_member(record: HeuristicRecord) -> Member:
    """A member of a population that a run was given."""
    return msgspec.convert(record, Member, from_attributes=True)


def heuristic_record(member: Member) -> HeuristicRecord:
    """The record of an archived heuristic."""
    return msgspec.convert(member, HeuristicRecord, from_attributes=True)
