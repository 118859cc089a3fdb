"""A problem: rate three candidates; the best rated one should lie near the target."""

import numpy as np

from search_to_signal.problems.base import (
    Array,
    Dialogue,
    Heuristic,
    InfeasibleAnswerError,
    Instance,
    frozen_instance,
)


class NearestNumber:
    name, title, unit, maximized = "nearest_number", "Nearest Number", "distance", False
    description = "Rate the candidates; the best rated one should lie near the target."
    template = "def rate(target, candidates):\n    return ratings\n"
    seed = Heuristic("The idea of the algorithm is to rate all alike.", "def rate(t, c):\n    return 0 * c\n")
    dialogue: Dialogue = "matrix"
    splits: tuple[str, ...] = ("train",)

    def instances(self, split: str) -> tuple[Instance, ...]:
        fields = [(np.array(target), np.arange(3.0)) for target in (0.0, 1.0)]
        return tuple(frozen_instance(target=target, candidates=numbers) for target, numbers in fields)

    def arguments(self, instance: Instance, parameters: int) -> tuple[float, Array]:
        return float(instance["target"]), instance["candidates"].copy()

    def answer_shape(self, instance: Instance) -> tuple[int, ...]:
        return instance["candidates"].shape

    def score(self, instance: Instance, answer: Array) -> float:
        if np.isnan(answer).any():
            raise InfeasibleAnswerError("expected numbers")
        return -float(abs(instance["candidates"][answer.argmax()] - instance["target"]))


problem = NearestNumber()
