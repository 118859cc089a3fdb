"""The wire format between parent and worker: fixed-size headers, exact lengths, no pickle.

A question is QUESTION + payload, an answer ANSWER + payload. Every answer repeats the random nonce of
its question, so that one prepared in advance or sent twice is recognised. Both sides import this file,
therefore it needs numpy and the standard library only.
"""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

QUESTION = struct.Struct("<IIq")  # kind, payload length, nonce
ANSWER = struct.Struct("<IIqq")  # kind, payload length, nonce, value

LOAD, TOUR, MATRIX, OPEN_STREAM, ITEM = 1, 2, 3, 4, 5
READY, VALUE, DATA, FAILED = 1, 2, 3, 4

# What a worker may say about its own failure, by number; anything else is a protocol error.
FAILURES = ("no_function", "gate", "exception", "memory", "bad_output", "invalid_decision")
# The element types in which a matrix may come back, by number.
DTYPES = ("<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1")

DETAIL_LIMIT = 200
SOURCE_LIMIT = 1 << 20

_ENTRY = struct.Struct("<24s4sI4Q")  # name, dtype, dimensions, shape
_ENTRY_DIMENSIONS = 4


def pack_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Encode named arrays (at most four dimensions) in order."""
    parts = [struct.pack("<I", len(arrays))]
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array)
        shape = tuple(array.shape) + (0,) * (_ENTRY_DIMENSIONS - array.ndim)
        parts += [_ENTRY.pack(name.encode(), raw.dtype.str.encode(), array.ndim, *shape), raw.tobytes()]
    return b"".join(parts)


def unpack_arrays(payload: bytes) -> dict[str, Array]:
    """Decode what pack_arrays made; the arrays are read-only views of the payload."""
    (count,) = struct.unpack_from("<I", payload)
    offset, arrays = 4, {}
    for _ in range(count):
        name, dtype, dimensions, *shape = _ENTRY.unpack_from(payload, offset)
        kind, offset = np.dtype(dtype.rstrip(b"\0").decode()), offset + _ENTRY.size
        size = int(np.prod(shape[:dimensions], dtype=np.int64))
        array = np.frombuffer(payload, kind, size, offset).reshape(shape[:dimensions])
        arrays[name.rstrip(b"\0").decode()] = array
        offset += array.nbytes
    return arrays


def printable(text: str) -> str:
    """Cut and clean text for a frame, a log or a prompt: printable ASCII, at most DETAIL_LIMIT."""
    return "".join(c if 32 <= ord(c) < 127 else "?" for c in text[:DETAIL_LIMIT])
