"""What the two sides of a conformance check answer: our search, and the released host."""

from dataclasses import dataclass
from typing import Any

from search_to_signal.errors import HostError
from search_to_signal.hosts.calm.state import SearchState
from search_to_signal.records.schema import Operator, Outcome


class NotComparableError(HostError):
    """An answer of the released host says nothing about its rules, for instance one cut short by time."""


@dataclass(frozen=True)
class AskedPrompt:
    """A prompt: its operator, the positions of its bases in the listed archive, and its text.

    ``chat`` is what the released host asked, ``used`` are its own objects for the prompts of the round, among
    which its rewards look. ``shown`` are the positions of the heuristics as it shows them, repeats included.
    """

    operator: Operator
    bases: tuple[int, ...]
    prompt: str = ""
    chat: Any = None
    used: tuple[Any, ...] = ()
    shown: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlayedGroup:
    """What became of a group, completion by completion, and the state after it, listed best first.

    ``scores`` are higher-is-better and absent where the outcome is not valid; ``rewards`` are native. An
    outcome is None for a failure whose reward is no severity.
    """

    outcomes: tuple[Outcome | None, ...]
    scores: tuple[float | None, ...]
    rewards: tuple[float, ...]
    after: SearchState
