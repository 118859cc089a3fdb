"""The wire format between parent and worker: fixed-size headers, exact lengths, no pickle.

A question is QUESTION + payload, an answer ANSWER + payload. Every answer repeats the random nonce of
its question, so that one prepared in advance or sent twice is recognised. Both sides import this file,
therefore it needs numpy and the standard library only.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Argument = Array | float | int

QUESTION = struct.Struct("<IIq")  # kind, payload length, nonce
ANSWER = struct.Struct("<IIqq")  # kind, payload length, nonce, value

LOAD, LOAD_STRICT, TOURS, BEGIN, CHOICE, MATRIX, ROWS = 1, 2, 3, 4, 5, 6, 7
READY, VALUE, DATA, FAILED = 1, 2, 3, 4

# What a worker may say about its own failure, by number; anything else is a protocol error.
FAILURES = ("no_function", "gate", "exception", "memory", "bad_output", "invalid_decision")
# The element types in which a matrix may come back, by number.
DTYPES = ("<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1")

DETAIL_LIMIT = 200

# Between the parent and a fork server: one seqpacket each.
HELLO = struct.Struct("<IiI")  # barriers that hold, Landlock ABI, user id
SPAWN = struct.Struct("<ddQ")  # wall seconds, processor seconds, bytes of memory; carries the data socket
STATUS = struct.Struct("<iiddq")  # pid, wait status, user seconds, system seconds, peak resident kB
KILL = b"K"

_ENTRY = struct.Struct("<7sB4Q")  # type, dimensions, shape
_SCALARS: dict[str, type] = {"float": float, "int": int}
_NO_SHAPE = (0, 0, 0, 0)


def pack_arguments(arguments: Sequence[Argument]) -> bytes:
    """Encode the positional arguments of a call: arrays of up to four dimensions, floats, integers."""
    parts = [struct.pack("<I", len(arguments))]
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            shape = (*argument.shape, *_NO_SHAPE)[:4]
            kind = argument.dtype.str.encode()
            parts += (_ENTRY.pack(kind, argument.ndim, *shape), argument.tobytes())
        else:
            kind, form = (b"int", "<q") if isinstance(argument, int) else (b"float", "<d")
            parts += (_ENTRY.pack(kind, 0, *_NO_SHAPE), struct.pack(form, argument))
    return b"".join(parts)


def unpack_arguments(payload: bytes) -> list[Argument]:
    """Decode what pack_arguments made; every array is fresh and writable."""
    (count,), offset = struct.unpack_from("<I", payload), 4
    arguments: list[Argument] = []
    for _ in range(count):
        kind, dimensions, *shape = _ENTRY.unpack_from(payload, offset)
        name, offset = kind.rstrip(b"\0").decode(), offset + _ENTRY.size
        scalar = _SCALARS.get(name)
        dtype = np.dtype(scalar or name)
        values = np.frombuffer(payload, dtype, math.prod(shape[:dimensions]), offset)
        offset += values.nbytes
        arguments.append(values.item() if scalar else values.reshape(shape[:dimensions]).copy())
    return arguments


def printable(text: str) -> str:
    """Cut and clean text for a frame, a log or a prompt: printable ASCII, at most DETAIL_LIMIT."""
    return "".join(c if 32 <= ord(c) < 127 else "?" for c in text[:DETAIL_LIMIT])
