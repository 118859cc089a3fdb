"""What the two sides of a conformance check answer: our search, and the released host."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from search_to_signal.hosts.base import HostError
from search_to_signal.records.schema import Operator, Outcome
from search_to_signal.search.state import SearchState


class NotComparableError(HostError):
    """An answer of the released host says nothing about its rules, for instance one cut short by time."""


@dataclass(frozen=True)
class AskedPrompt:
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
class PlayedGroup:
    """What became of a group, completion by completion, and the state after it, listed best first.

    ``scores`` are higher-is-better and absent where the outcome is not valid; ``rewards`` are native.
    """

    outcomes: tuple[Outcome, ...]
    scores: tuple[float | None, ...]
    rewards: tuple[float, ...]
    after: SearchState


class ComparedHost(Protocol):
    """A host as the checks ask it, on the training instances of one problem. States are listed best first."""

    def arrays(self) -> Sequence[NDArray[Any]]:
        """The arrays that its training instances are made of."""

    def scores(self, code: str) -> tuple[float, ...] | None:
        """Score on every instance and then their mean, or the mean alone; None for a failure."""

    def ask(self, state: SearchState) -> AskedPrompt:
        """Draw one prompt."""

    def play(self, state: SearchState, asked: AskedPrompt, texts: Sequence[str]) -> PlayedGroup:
        """Judge the answers to a prompt, and move the state."""

    def collapsed(self, state: SearchState) -> SearchState:
        """The state after a collapse."""
