"""What a problem is. Adding one is one file that defines a Problem and one line in the registry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]
Instance = Mapping[str, Array]


class InfeasibleAnswerError(Exception):
    """An answer that is no solution of its instance; becomes a runtime failure, never an error of ours."""


@dataclass(frozen=True)
class Heuristic:
    """A named idea with its code, as the search stores and shows it."""

    idea: str
    code: str


class Problem(Protocol):
    """A search problem. All scores are higher-is-better; ``unit`` names what the number measures.

    ``dialogue`` says how an isolated worker is asked, and decides which answers it may give:
    ``tour`` (the worker builds the whole visiting order of one instance), ``stream`` (the parent
    reveals one item at a time), ``matrix`` (one call per instance that returns a matrix).
    """

    name: str
    title: str
    description: str
    unit: str
    function_name: str
    template: str
    seed: Heuristic
    dialogue: str

    def instances(self, split: str) -> tuple[Instance, ...]:
        """Return the instances of a split; raises DataHashError when they are not the recorded ones."""
        ...

    def score(self, instance: Instance, answer: Array) -> float:
        """Score one answer in the parent; raises InfeasibleAnswerError when it is no solution."""
        ...
