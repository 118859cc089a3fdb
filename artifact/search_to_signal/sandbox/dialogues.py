"""The parent's side of each dialogue: ask for decisions, check them, score them with the problem.

A worker is sent what the heuristic may see at that moment: of an online problem, never a later
item. It starts the heuristic afresh for every tour, stream and matrix. What it answers is a decision; the
score is computed here from instances that it cannot reach.
"""

import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from search_to_signal.base.plugins import third_party_errors
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import Array, InfeasibleAnswerError, Instance, ReadsRows
from search_to_signal.sandbox import wire_format
from search_to_signal.sandbox.outcomes import CandidateError, Isolation

# The parent's end of a worker's data socket: ask, and accept exactly the expected answer.

_NONCES = struct.Struct("<64q")
_LATE, _UNREAD = "elapsed time", "does not read"
# The details of a TIMEOUT by elapsed time: those of this end, and of the worker's own timer.
BY_ELAPSED_TIME = ("SIGALRM", _LATE, _UNREAD)


class WorkerGoneError(Exception):
    """The worker closed its socket or died; how it died is known once it is reaped."""


class Channel:
    """Questions and answers with one worker, until a deadline that a dribbling worker cannot move."""

    def __init__(self, data: socket.socket, wall_s: float) -> None:
        self._socket = data
        self._fd = data.fileno()
        self._deadline = time.monotonic() + wall_s
        timeout = struct.pack("@ll", int(wall_s) + 1, 0)
        data.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        data.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        self._nonces: list[int] = []
        self._nonce = 0

    def wait_until_ready(self) -> None:
        """Return once the worker has locked itself up; raises WorkerGoneError when it could not."""
        self._expect(wire_format.READY)

    def ask(self, kind: int, payload: bytes = b"") -> None:
        """Send one question; raises WorkerGoneError, or CandidateError when it is not read."""
        if not self._nonces:
            self._nonces = list(_NONCES.unpack(os.urandom(_NONCES.size)))
        self._nonce = self._nonces.pop()
        try:
            self._socket.sendall(wire_format.QUESTION.pack(kind, len(payload), self._nonce) + payload)
        except BlockingIOError as error:
            raise CandidateError(Isolation.TIMEOUT, _UNREAD) from error
        except OSError as error:
            raise WorkerGoneError from error

    def value(self) -> int:
        """Receive an answer that is one integer."""
        value, _ = self._expect(wire_format.VALUE)
        return value

    def array(self, shape: tuple[int, ...], dtypes: Sequence[str]) -> Array:
        """Receive an array of exactly this shape in one of these element types, read-only."""
        number, length = self._expect(wire_format.DATA)
        if not 0 <= number < len(dtypes):
            raise CandidateError(Isolation.PROTOCOL, "unknown element type")
        dtype = np.dtype(dtypes[number])
        if length != math.prod(shape) * dtype.itemsize:
            raise CandidateError(Isolation.PROTOCOL, "unexpected length")
        return np.frombuffer(self._read(length), dtype).reshape(shape)

    def _expect(self, kind: int) -> tuple[int, int]:
        received, length, nonce, value = wire_format.ANSWER.unpack(self._read(wire_format.ANSWER.size))
        if nonce != self._nonce:
            raise CandidateError(Isolation.PROTOCOL, "answer to another question")
        if received == wire_format.FAILED:
            raise self._failure(length, value)
        if received != kind or (length and kind != wire_format.DATA):
            raise CandidateError(Isolation.PROTOCOL, "unexpected frame")
        return value, length

    def _failure(self, length: int, code: int) -> CandidateError:
        if length > wire_format.DETAIL_LIMIT or not 0 <= code < len(wire_format.FAILURES):
            return CandidateError(Isolation.PROTOCOL, "malformed failure")
        text = self._read(length).decode("latin-1")
        return CandidateError(Isolation(wire_format.FAILURES[code]), wire_format.printable(text))

    def _read(self, size: int) -> bytes:
        parts, have = [], 0
        while have < size:
            try:
                chunk = os.read(self._fd, size - have)
            except BlockingIOError:
                chunk = b""
                self._deadline = 0.0
            except ConnectionError as error:
                raise WorkerGoneError from error
            if time.monotonic() > self._deadline:
                raise CandidateError(Isolation.TIMEOUT, _LATE)
            if not chunk:
                raise WorkerGoneError
            parts.append(chunk)
            have += len(chunk)
        return b"".join(parts)


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
