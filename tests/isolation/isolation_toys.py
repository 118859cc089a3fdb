"""Small problems of every dialogue, so that a hostile program is judged in milliseconds."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from search_to_signal.problems.base import InfeasibleAnswerError

Instance = Mapping[str, Any]
_RNG_SEED = 7


def _distances(nodes: int, seed: int) -> Any:
    points = np.random.RandomState(seed).rand(nodes, 2)
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1)) + np.eye(nodes)


class Tour:
    """Two tours of 16 nodes; score is minus the length."""

    name, dialogue = "tsp", "tour"

    def instances(self, split: str) -> tuple[Instance, ...]:
        return tuple(MappingProxyType({"distance": _distances(16, seed)}) for seed in (1, 2))

    def score(self, instance: Instance, answer: Any) -> float:
        if sorted(answer.tolist()) != list(range(16)):
            raise InfeasibleAnswerError("no tour")
        return -float(instance["distance"][answer, np.roll(answer, 1)].sum())


class Packing:
    """Bins of 100 for items that become known one at a time."""

    def __init__(self, items: list[float]) -> None:
        self._items, self._room = items, np.full(len(items), 100.0)

    @property
    def done(self) -> bool:
        return not self._items

    def question(self) -> tuple[float, Any]:
        return self._items[0], self._room[self._room >= self._items[0]]

    def decide(self, choice: int) -> None:
        fitting = np.flatnonzero(self._room >= self._items[0])
        if not 0 <= choice < len(fitting):
            raise InfeasibleAnswerError("no such bin")
        self._room[fitting[choice]] -= self._items.pop(0)

    def score(self) -> float:
        return -float((self._room < 100).sum())


class Stream:
    """Sixty items; score is minus the number of bins."""

    name, dialogue = "obp", "stream"

    def instances(self, split: str) -> tuple[Instance, ...]:
        return (MappingProxyType({"items": np.random.RandomState(_RNG_SEED).randint(5, 60, 60) * 1.0}),)

    def open(self, instance: Instance) -> Packing:
        return Packing(instance["items"].tolist())


class Matrix:
    """One matrix of 51 nodes; score is the sum of the smallest columns, infinite when an entry is."""

    dialogue = "matrix"

    def __init__(self, name: str) -> None:
        self.name = name

    def instances(self, split: str) -> tuple[Instance, ...]:
        return (MappingProxyType({"distance": _distances(51, 3), "values": np.arange(51.0)}),)

    def answer_shape(self, instance: Instance) -> tuple[int, ...]:
        return (51, 51)

    def arguments(self, instance: Instance, parameters: int) -> tuple[Any, ...]:
        distance, values = instance["distance"].copy(), instance["values"].copy()
        return (values, distance, 3.0) if self.name == "op" else (distance, distance[:, :2], values, 50)

    def score(self, instance: Instance, answer: Any) -> float:
        return float(answer.argsort(axis=1)[:, 0].sum()) if np.isfinite(answer).all() else float("inf")


PROBLEMS: Mapping[str, Any] = MappingProxyType(
    {"tsp": Tour(), "obp": Stream(), "cvrp": Matrix("cvrp"), "op": Matrix("op")}
)
