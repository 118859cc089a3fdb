"""The process in which one candidate runs: lock up, read the source, answer questions until killed.

Nothing in here is trusted once the candidate has been executed. What protects the score is that the
parent checks every answer; what protects the machine is the kernel's locks, set before the source
arrives. This file therefore may catch everything: it is the isolation boundary.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from search_to_signal.base.numerics import read_by_rows
from search_to_signal.sandbox import static_gate, wire_format
from search_to_signal.sandbox.loading import FILE_NAME, Function, NotOneFunctionError, Program
from search_to_signal.sandbox.locks import DATA_FD
from search_to_signal.sandbox.wire_format import DTYPES, Argument, Array

# The worker's side of each dialogue: call the heuristic as the host does, answer with decisions only.


class DecisionError(Exception):
    """The heuristic named something that cannot be chosen."""


class OutputError(Exception):
    """The heuristic returned something of another kind than its task asks for."""


def build_tour(function: Function, distance: Array) -> bytes:
    """Visit all nodes from node 0 as the host does; the tour as int64, shape (n,).

    Every call gets a fresh set built from the ascending unvisited nodes and a fresh copy of the matrix;
    -1 stands for the last unvisited node. Raises DecisionError for a node that is not unvisited.
    """
    unvisited = list(range(1, len(distance)))
    tour = [0]
    while unvisited:
        node = int(function(tour[-1], 0, set(unvisited), distance.copy()))
        if node == -1:
            node = unvisited[-1]
        if node not in unvisited:
            raise DecisionError(f"step {len(tour)}: the answer is no unvisited node")
        unvisited.remove(node)
        tour.append(node)
    return np.array(tour, dtype="<i8").tobytes()


def choose(function: Function, arguments: Sequence[Argument]) -> int:
    """Index of the first maximum of the returned priorities; a NaN counts as one, as in numpy."""
    return int(np.argmax(function(*arguments)))


def fill_matrix(
    function: Function, shape: tuple[int, ...], arguments: Sequence[Argument], by_rows: bool = False
) -> tuple[int, bytes]:
    """Call once; the matrix with the number of its element type, which is kept.

    ``by_rows`` takes what is that matrix to a reader of rows (``read_by_rows``). Raises OutputError when the
    answer is no numpy array of that shape and of a known type.
    """
    answer = function(*arguments)
    if not isinstance(answer, np.ndarray):
        raise OutputError(f"the answer is no array of shape {shape}")
    matrix = np.asarray(answer, dtype=answer.dtype.newbyteorder("="))
    if by_rows:
        matrix = read_by_rows(matrix, shape)
    if matrix.shape != shape:
        raise OutputError(f"the answer has shape {matrix.shape}, expected {shape}")
    if matrix.dtype.str not in DTYPES:
        raise OutputError(f"the answer has elements of type {matrix.dtype}")
    return DTYPES.index(matrix.dtype.str), matrix.tobytes()


_HEAP_TYPE = 1 << 9
_PRINTABLE = (str, int, float, type(None))


class _RefusedError(Exception):
    """Strict mode does not run this program."""


_LOADS = (wire_format.LOAD, wire_format.LOAD_STRICT)
_OURS = {
    _RefusedError: "gate",
    NotOneFunctionError: "no_function",
    DecisionError: "invalid_decision",
    OutputError: "bad_output",
}


class _Silence:
    """Stands in for stdout and stderr, which no longer exist."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def silence() -> None:
    """Point the standard streams to nothing."""
    sys.stdout = sys.__stdout__ = sys.stderr = sys.__stderr__ = _Silence()  # type: ignore[misc, assignment]
    sys.stdin = sys.__stdin__ = None  # type: ignore[misc]


def serve() -> None:
    """Announce readiness, then answer one question after the other; ends with the data socket."""
    state: dict[str, Any] = {}
    _send(wire_format.ANSWER.pack(wire_format.READY, 0, 0, 0))
    while True:
        kind, length, nonce = wire_format.QUESTION.unpack(_receive(wire_format.QUESTION.size))
        payload = _receive(length)
        try:
            answer = _answer(state, kind, payload, nonce)
        except BaseException as error:  # noqa: BLE001 - the isolation boundary
            answer = _failure(error, kind, nonce)
        _send(answer)


def _answer(state: dict[str, Any], kind: int, payload: bytes, nonce: int) -> bytes:
    if kind in _LOADS:
        source = payload.decode("utf-8", "surrogatepass")
        if kind == wire_format.LOAD_STRICT and (reason := static_gate.refusal(source)):
            raise _RefusedError(reason)
        state["program"] = Program(source)
        return wire_format.ANSWER.pack(
            wire_format.VALUE, 0, nonce, state["program"].fresh().__code__.co_argcount
        )
    program: Program = state["program"]
    arguments: list[Any] = wire_format.unpack_arguments(payload)
    if kind == wire_format.BEGIN:
        state["function"] = program.fresh()
        return wire_format.ANSWER.pack(wire_format.VALUE, 0, nonce, 0)
    if kind == wire_format.CHOICE:
        return wire_format.ANSWER.pack(wire_format.VALUE, 0, nonce, choose(state["function"], arguments))
    if kind == wire_format.TOURS:
        code, raw = 0, b"".join(build_tour(program.fresh(), distance) for distance in arguments)
    else:
        shape, *arguments = arguments
        by_rows = kind == wire_format.ROWS
        code, raw = fill_matrix(program.fresh(), tuple(shape.tolist()), arguments, by_rows)
    return wire_format.ANSWER.pack(wire_format.DATA, len(raw), nonce, code) + raw


def _failure(error: BaseException, kind: int, nonce: int) -> bytes:
    code, text = _describe(error, kind)
    raw = wire_format.printable(text).encode()
    return (
        wire_format.ANSWER.pack(wire_format.FAILED, len(raw), nonce, wire_format.FAILURES.index(code)) + raw
    )


def _describe(error: BaseException, kind: int) -> tuple[str, str]:
    if isinstance(error, MemoryError):
        return "memory" if kind not in _LOADS else "no_function", ""
    for kind_of_error, code in _OURS.items():
        if isinstance(error, kind_of_error):
            return code, str(error)
    text = f"{type(error).__name__}: {_text(error)}{_line(error)}"
    return "no_function" if kind in _LOADS else "exception", text


def _text(error: BaseException) -> str:
    # Printing runs the code of the exception and of what it holds: only what is all C is printed.
    if type(error).__flags__ & _HEAP_TYPE or any(type(part) not in _PRINTABLE for part in error.args):
        return ""
    return str(error)


def _line(error: BaseException) -> str:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line else ""


def _receive(size: int) -> bytes:
    chunk = os.read(DATA_FD, size) if size else b""
    if len(chunk) == size:
        return chunk
    parts, have = [chunk], len(chunk)
    while have < size:
        if not parts[-1]:
            os._exit(0)
        parts.append(os.read(DATA_FD, min(size - have, 1 << 20)))
        have += len(parts[-1])
    return b"".join(parts)


def _send(raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(DATA_FD, view) :]
