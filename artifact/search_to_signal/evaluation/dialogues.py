"""The parent's side of each dialogue: ask for decisions, check them, score them with the problem.

What a worker is told is what the heuristic may see at that moment: of an online problem, never a later
item. What it answers is a decision; the score is computed here from instances that it cannot reach.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from search_to_signal.evaluation import frames
from search_to_signal.evaluation.channel import Channel
from search_to_signal.evaluation.outcomes import CandidateError, Isolation
from search_to_signal.problems.base import Array, InfeasibleAnswerError, Instance


@dataclass(frozen=True)
class Task:
    """What a candidate is asked: a problem of any dialogue and some of its instances, in this order.

    Without ``scored`` the decisions are collected and the objective, an ant colony perhaps, is not computed.
    """

    problem: Any
    instances: Sequence[Instance]
    scored: bool = True


Decided = tuple[Array, Callable[[], float]]
Dialogue = Callable[[Channel, Any, Instance, int], Decided]


def _tour(channel: Channel, problem: Any, instance: Instance, parameters: int) -> Decided:
    """The whole visiting order, int64 (n,): the function sees the full matrix at every step anyway."""
    distance = instance["distance"]
    channel.ask(frames.TOUR, frames.pack_arguments([distance]))
    tour = channel.array((len(distance),), ("<i8",))
    return tour, lambda: float(problem.score(instance, tour))


def _stream(channel: Channel, problem: Any, instance: Instance, parameters: int) -> Decided:
    """One choice at a time, int64 (questions,); a question leaves when the one before is decided."""
    stream, choices = problem.open(instance), []
    while not stream.done:
        channel.ask(frames.CHOICE, frames.pack_arguments(stream.question()))
        choices.append(channel.value())
        stream.decide(choices[-1])
    return np.array(choices, dtype=np.int64), lambda: float(stream.score())


def _matrix(channel: Channel, problem: Any, instance: Instance, parameters: int) -> Decided:
    """One matrix in the shape of the distances and the element type that the heuristic gave it."""
    shape = instance["distance"].shape
    arguments = problem.arguments(instance, parameters)
    channel.ask(frames.MATRIX, frames.pack_arguments([*shape, *arguments]))
    matrix = channel.array(shape, frames.DTYPES)
    return matrix, lambda: float(problem.score(instance, matrix))


# With each dialogue, what it is called when the problem refuses an answer.
_DIALOGUES: Mapping[str, tuple[Dialogue, Isolation]] = MappingProxyType(
    {
        "tour": (_tour, Isolation.INVALID_DECISION),
        "stream": (_stream, Isolation.INVALID_DECISION),
        "matrix": (_matrix, Isolation.BAD_OUTPUT),
    }
)


def decide(channel: Channel, task: Task, parameters: int) -> Iterator[tuple[Array, float]]:
    """Hold the dialogue about a function with so many parameters; decisions and score per instance.

    The score is NaN when the task is not scored. Raises CandidateError for decisions that are no
    solution or have no finite score (D17), and WorkerGoneError when the worker ends.
    """
    dialogue, refused = _DIALOGUES[task.problem.dialogue]
    for instance in task.instances:
        try:
            answer, score = dialogue(channel, task.problem, instance, parameters)
            value = score() if task.scored else math.nan
        except InfeasibleAnswerError as error:
            raise CandidateError(refused, frames.printable(str(error))) from error
        if task.scored and not math.isfinite(value):
            raise CandidateError(Isolation.BAD_OUTPUT, "the score is not finite")
        yield answer, value
