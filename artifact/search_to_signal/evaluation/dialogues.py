"""The parent's side of each dialogue: ask for decisions, check them, score them with the problem.

A worker is sent what the heuristic may see at that moment: of an online problem, never a later
item. It starts the heuristic afresh for every tour, stream and matrix. What it answers is a decision; the
score is computed here from instances that it cannot reach.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from search_to_signal.evaluation import wire_format
from search_to_signal.evaluation.channel import Channel
from search_to_signal.evaluation.outcomes import CandidateError, Isolation
from search_to_signal.plugins import third_party_errors
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import Array, InfeasibleAnswerError, Instance, ReadsRows


@dataclass(frozen=True)
class ProgramTask:
    """What a candidate is asked: a problem of any dialogue and some of its instances, in this order.

    Without ``scored`` the decisions are collected and the objective, an ant colony perhaps, is not computed.
    """

    problem: Any
    instances: Sequence[Instance]
    scored: bool = True


Decided = tuple[Array, Callable[[], float]]
Dialogue = Callable[[Channel, Any, int, Sequence[Instance]], Iterator[Decided]]

# Tours asked for with one question: a question costs as much as building a short tour.
_TOURS_AT_ONCE = 16


def _tours(
    channel: Channel, problem: Any, parameters: int, instances: Sequence[Instance]
) -> Iterator[Decided]:
    """Whole visiting orders, int64 (n,): the function sees the full matrix at every step anyway."""
    for start in range(0, len(instances), _TOURS_AT_ONCE):
        group = instances[start : start + _TOURS_AT_ONCE]
        matrices = [instance["distance"] for instance in group]
        channel.ask(wire_format.TOURS, wire_format.pack_arguments(matrices))
        ends = np.cumsum([len(matrix) for matrix in matrices])
        answer = channel.array((int(ends[-1]),), ("<i8",))
        for instance, tour in zip(group, np.split(answer, ends[:-1]), strict=True):
            yield tour, partial(problem.score, instance, tour)


def _streams(
    channel: Channel, problem: Any, parameters: int, instances: Sequence[Instance]
) -> Iterator[Decided]:
    """One choice at a time, int64 (questions,); a question leaves when the one before is decided."""
    for instance in instances:
        stream, choices = problem.open(instance), []
        channel.ask(wire_format.BEGIN, wire_format.pack_arguments(()))
        channel.value()
        while not stream.done:
            channel.ask(wire_format.CHOICE, wire_format.pack_arguments(stream.question()))
            choices.append(channel.value())
            stream.decide(choices[-1])
        yield np.array(choices, dtype=np.int64), stream.score


def _matrices(
    channel: Channel, problem: Any, parameters: int, instances: Sequence[Instance]
) -> Iterator[Decided]:
    """Matrices in the shape that the problem asks for and the element type that the heuristic gave them."""
    kind = wire_format.ROWS if isinstance(problem, ReadsRows) and problem.reads_rows else wire_format.MATRIX
    for instance in instances:
        with scoring(problem):
            shape = problem.answer_shape(instance)
            arguments = problem.arguments(instance, parameters)
        channel.ask(kind, wire_format.pack_arguments([np.array(shape), *arguments]))
        matrix = channel.array(shape, wire_format.DTYPES)
        yield matrix, partial(problem.score, instance, matrix)


# With each dialogue, what it is called when the problem refuses an answer.
_DIALOGUES: Mapping[str, tuple[Dialogue, Isolation]] = MappingProxyType(
    {
        "tour": (_tours, Isolation.INVALID_DECISION),
        "stream": (_streams, Isolation.INVALID_DECISION),
        "matrix": (_matrices, Isolation.BAD_OUTPUT),
    }
)


def scoring(problem: Any) -> AbstractContextManager[None]:
    """Context in which a problem computes something: errors of a third-party problem become one line."""
    name = getattr(problem, "name", "")
    return third_party_errors(f"problem {name}", name in PROBLEMS, (InfeasibleAnswerError,))


def decide(channel: Channel, task: ProgramTask, parameters: int) -> Iterator[tuple[Array, float]]:
    """Hold the dialogue about a function with so many parameters; decisions and score per instance.

    The score is NaN when the task is not scored. Raises CandidateError for decisions that are no
    solution or have no finite score (D17), WorkerGoneError when the worker ends, and MappingError where a
    third-party problem fails to compute a score.
    """
    dialogue, refused = _DIALOGUES[task.problem.dialogue]
    try:
        for answer, score in dialogue(channel, task.problem, parameters, task.instances):
            with scoring(task.problem):
                value = float(score()) if task.scored else math.nan
            if task.scored and not math.isfinite(value):
                raise CandidateError(Isolation.BAD_OUTPUT, "the score is not finite")
            yield answer, value
    except InfeasibleAnswerError as error:
        raise CandidateError(refused, wire_format.printable(str(error))) from error
