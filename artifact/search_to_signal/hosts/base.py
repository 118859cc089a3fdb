"""What both hosts answer, so that one can be put beside the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from search_to_signal.errors import S2SError
from search_to_signal.records.schema import Operator, Outcome
from search_to_signal.search.state import SearchState


class HostError(S2SError):
    """A released host lacks, or does not keep, the interface that this package knows."""

    exit_code = 12


class NotComparableError(HostError):
    """An answer of the released host says nothing about its rules, for instance one cut short by time."""


@dataclass(frozen=True)
class Asked:
    """A prompt: its operator, the positions of its bases in the listed archive, and its text.

    ``chat`` is what the released host asked, ``used`` are its own objects for the prompts of the round, among
    which its rewards look.
    """

    operator: Operator
    bases: tuple[int, ...]
    prompt: str = ""
    chat: Any = None
    used: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Played:
    """What became of a group, completion by completion, and the state after it, listed best first.

    ``scores`` are higher-is-better and absent where the outcome is not valid; ``rewards`` are native.
    """

    outcomes: tuple[Outcome, ...]
    scores: tuple[float | None, ...]
    rewards: tuple[float, ...]
    after: SearchState


class Host(Protocol):
    """A search host for one problem on its training instances. States are listed best first."""

    def arrays(self) -> Sequence[NDArray[Any]]:
        """The arrays that its training instances are made of."""
        ...

    def scores(self, code: str) -> tuple[float, ...] | None:
        """Score on every instance and then their mean, or the mean alone; None for a failure."""
        ...

    def ask(self, state: SearchState) -> Asked:
        """Draw one prompt."""
        ...

    def play(self, state: SearchState, asked: Asked, texts: Sequence[str]) -> Played:
        """Judge the answers to a prompt, and move the state."""
        ...

    def collapsed(self, state: SearchState) -> SearchState:
        """The state after a collapse."""
        ...
