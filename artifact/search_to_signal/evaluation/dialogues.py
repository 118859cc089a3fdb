"""The parent's side of each dialogue: ask for decisions, check them, score them with the problem.

Each dialogue yields, instance by instance, the decisions as an array and their score. What a worker is
told is what the heuristic may see at that moment: of an online problem, never a later item.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from search_to_signal.evaluation import frames
from search_to_signal.evaluation.channel import Channel
from search_to_signal.evaluation.outcomes import CandidateError, Isolation
from search_to_signal.problems.base import Array, InfeasibleAnswerError, Instance

Scored = tuple[Array, float]
Dialogue = Callable[[Channel, Any, int, Sequence[Instance]], Iterator[Scored]]


def _tours(
    channel: Channel, problem: Any, parameters: int, instances: Sequence[Instance]
) -> Iterator[Scored]:
    """Whole visiting orders, int64 of shape (n,): the function sees the full matrix at every step anyway."""
    for instance in instances:
        distance = instance["distance"]
        channel.ask(frames.TOUR, frames.pack_arguments([distance]))
        tour = channel.array((len(distance),), ("<i8",))
        yield tour, problem.score(instance, tour)


def _streams(
    channel: Channel, problem: Any, parameters: int, instances: Sequence[Instance]
) -> Iterator[Scored]:
    """One choice at a time; the next question leaves the parent when the last one is decided."""
    for instance in instances:
        stream, choices = problem.open(instance), []
        while not stream.done:
            channel.ask(frames.CHOICE, frames.pack_arguments(stream.question()))
            choices.append(channel.value())
            stream.decide(choices[-1])
        yield np.array(choices, dtype=np.int64), stream.score()


def _matrices(
    channel: Channel, problem: Any, parameters: int, instances: Sequence[Instance]
) -> Iterator[Scored]:
    """One matrix per instance in the element type that the heuristic gave it."""
    for instance in instances:
        shape = instance["distance"].shape
        arguments = problem.arguments(instance, parameters)
        channel.ask(frames.MATRIX, frames.pack_arguments([*shape, *arguments]))
        matrix = channel.array(shape, frames.DTYPES)
        yield matrix, problem.score(instance, matrix)


# What an answer is called that the problem refuses.
_DIALOGUES: Mapping[str, tuple[Dialogue, Isolation]] = MappingProxyType(
    {
        "tour": (_tours, Isolation.INVALID_DECISION),
        "stream": (_streams, Isolation.INVALID_DECISION),
        "matrix": (_matrices, Isolation.BAD_OUTPUT),
    }
)


def decisions(
    channel: Channel, problem: Any, parameters: int, instances: Sequence[Instance]
) -> Iterator[Scored]:
    """Hold the problem's dialogue about a function with so many parameters.

    Raises CandidateError for decisions that are no solution or have no finite score (D17), and
    WorkerGoneError when the worker ends.
    """
    dialogue, refused = _DIALOGUES[problem.dialogue]
    try:
        for answer, score in dialogue(channel, problem, parameters, instances):
            if not math.isfinite(score):
                raise CandidateError(Isolation.BAD_OUTPUT, "the score is not finite")
            yield answer, score
    except InfeasibleAnswerError as error:
        raise CandidateError(refused, frames.printable(str(error))) from error
