"""What the search remembers between rounds. Everything here is frozen; a round makes a new state."""

import re
from dataclasses import dataclass
from functools import cached_property

from search_to_signal.problems.base import Heuristic
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.records.schema import Operator

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Member:
    """An archived heuristic (host point 7). ``score`` is higher-is-better; seeds have no operator.

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
        """The distinct lower-cased words of the idea (host point 11)."""
        return frozenset(_WORD.findall(self.idea.lower()))


@dataclass(frozen=True)
class SearchState:
    """The search between two rounds.

    ``archive`` is in the order of its last listing, new members last. ``used_prompts`` are those of the
    round in progress (host point 12). ``injected`` are the components in order of appearance.
    ``stagnation`` counts rounds without a new best (host point 13).
    """

    archive: tuple[Member, ...]
    seeds: tuple[Member, ...]
    used_prompts: frozenset[str] = frozenset()
    injected: tuple[str, ...] = ()
    stagnation: int = 0


def initial_state(seed: Heuristic, score: float) -> SearchState:
    """The state before the first round: the seed heuristic alone."""
    member = Member(seed.idea, seed.code, score, None, step=0, index=0, id=program_sha256(seed.code))
    return SearchState(archive=(member,), seeds=(member,))
