"""The parent's end of a worker's data socket: ask, and accept exactly the expected answer."""

import math
import os
import socket
import struct
import time
from collections.abc import Sequence

import numpy as np

from search_to_signal.evaluation import wire_format
from search_to_signal.evaluation.outcomes import CandidateError, Isolation
from search_to_signal.evaluation.wire_format import Array

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
