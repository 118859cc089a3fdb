"""Event files of TensorBoard and run files of Weights & Biases, read without their libraries.

Both are records of protobuf, each with a checksum. TensorBoard (TFRecord): the length in 8 bytes, its
checksum, the data, its checksum; a checksum is a CRC-32C, turned and shifted. Weights & Biases (the log
format of LevelDB behind 7 bytes of its own): blocks of 32 KiB, in which a record begins with a CRC-32, its
length, and whether it is whole or the first, a middle or the last part of one.

A file that ends within a record, as of a writer that was stopped, or that is damaged, is read up to there.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from search_to_signal.audit.importers.streams import parse_json, regular
from search_to_signal.base.errors import RecordError

WANDB_START = b":W&B"
_WANDB_HEADER, _BLOCK = 7, 32_768
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
# Larger records hold pictures or graphs: they are passed over, and so is their checksum.
_LARGEST = 1024 * 1024
_FLOAT, _DOUBLE = 1, 2
Row = dict[str, Any]


@dataclass
class Held:
    """What a file holds: ``rows`` of numbers in order, each with its step where the writer gives one,
    ``settings`` of the run, and where it ``ends`` before its end."""

    rows: list[tuple[int | None, Row]] = field(default_factory=list)
    settings: Row = field(default_factory=dict)
    ends: str = ""


class _Broken(Exception):
    """The file cannot be read from here on; says why."""


def read_events(path: Path) -> Held:
    """The scalars of an event file, a row for each, and the arguments that a trainer of transformers wrote.

    Raises RecordError for a file that is none, or of which the first record is damaged.
    """
    held = Held()
    return _read(path, held, _events, lambda data: _add_event(held, data))


def read_wandb(path: Path) -> Held:
    """The history and the configuration of a run file of Weights & Biases. Errors as in ``read_events``."""
    held = Held()
    return _read(path, held, _wandb_records, lambda data: _add_wandb(held, data))


def _read(path: Path, held: Held, records: Any, add: Any) -> Held:
    count = 0
    with regular(path) as file:
        try:
            for data in records(file):
                add(data)
                count += 1
        except (_Broken, struct.error, IndexError, ValueError, OverflowError, OSError) as error:
            why = str(error) if isinstance(error, _Broken) else "it is no record of its format"
            if not count:
                raise RecordError(f"{path}: record 1 cannot be read ({why}); copy the file again") from error
            held.ends = f"record {count + 1} cannot be read ({why}): the {count} before it are"
    return held


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise _Broken("the file ends within it, as of a writer that was stopped")
    return data


def _events(file: BinaryIO) -> Iterator[bytes]:
    while start := file.read(1):
        head = start + _exactly(file, 11)
        if _masked(head[:8]) != struct.unpack("<I", head[8:])[0]:
            raise _Broken("the checksum of its length is wrong")
        size = struct.unpack("<Q", head[:8])[0]
        if size > _LARGEST:
            file.seek(size + 3, 1)
            _exactly(file, 1)
            continue
        data = _exactly(file, size)
        if _masked(data) != struct.unpack("<I", _exactly(file, 4))[0]:
            raise _Broken("its checksum is wrong")
        yield data


@cache
def _table() -> tuple[int, ...]:
    """CRC-32C of every byte (Castagnoli's polynomial, reflected)."""
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 * (byte & 1)
        found.append(byte)
    return tuple(found)


def _masked(data: bytes) -> int:
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _wandb_records(file: BinaryIO) -> Iterator[bytes]:
    if not file.read(_WANDB_HEADER).startswith(WANDB_START):
        raise _Broken("it does not begin as a run file does")
    parts: list[bytes] = []
    while True:
        left = _BLOCK - file.tell() % _BLOCK
        if left < _WANDB_HEADER:
            file.read(left)
        start = file.read(1)
        if not start:
            return
        checksum, size, kind = struct.unpack("<IHB", start + _exactly(file, _WANDB_HEADER - 1))
        data = _exactly(file, size)
        if zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
            raise _Broken("its checksum is wrong")
        parts = [data] if kind in (_WHOLE, _FIRST) else [*parts, data]
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of the fields of a message: a whole number, or the bytes of anything else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            size, at = _varint(data, at)
        if (not size and kind != 2) or at + size > len(data):
            raise ValueError("a field is cut, or of an unknown kind")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number is too long")


def _add_event(held: Held, data: bytes) -> None:
    """Event: step = 2, summary = 5. Summary: value = 1. Value: tag = 1, simple_value = 2, tensor = 8."""
    step, row = 0, Row()
    for number, value in _fields(data):
        if number == 2:
            step = value - 2**64 if value >= 2**63 else value
        elif number == 5:
            for _, one in _fields(value):
                parts = dict(_fields(one))
                tag = parts.get(1, b"").decode("utf-8", "replace")
                if tag == "args/text_summary":
                    held.settings = _arguments(parts.get(8, b""))
                elif 2 in parts:
                    row[tag] = struct.unpack("<f", parts[2])[0]
                elif (scalar := _scalar(parts.get(8, b""))) is not None:
                    row[tag] = scalar
    if row:
        held.rows.append((step, row))


def _scalar(tensor: bytes) -> float | None:
    """One number of a TensorProto: dtype = 1, tensor_content = 4, float_val = 5, double_val = 6."""
    parts = dict(_fields(tensor))
    kind = {_FLOAT: ("<f", 5), _DOUBLE: ("<d", 6)}.get(parts.get(1, 0))
    if kind is None:
        return None
    given = parts.get(4) or parts.get(kind[1], b"")
    return float(struct.unpack(kind[0], given)[0]) if len(given) == struct.calcsize(kind[0]) else None


def _arguments(tensor: bytes) -> Row:
    """The arguments that transformers writes as text: string_val = 8."""
    text = dict(_fields(tensor)).get(8, b"")
    with suppress(ValueError, RecursionError):
        found = parse_json(text)
        return found if isinstance(found, dict) else {}
    return {}


def _add_wandb(held: Held, data: bytes) -> None:
    """Record: history = 2, config = 5, run = 17. RunRecord: config = 4."""
    for number, value in _fields(data):
        if number == 2:
            held.rows.append((None, _items(value)))
        elif number == 5:
            held.settings |= _items(value)
        elif number == 17:
            held.settings |= _items(dict(_fields(value)).get(4, b""))


def _items(data: bytes) -> Row:
    """Items (field 1) of a history or configuration: key = 1, nested_key = 2, value_json = 16."""
    row = Row()
    for number, item in _fields(data):
        if number != 1:
            continue
        keys, text = list[str](), b"null"
        for part, value in _fields(item):
            if part in (1, 2):
                keys.append(value.decode("utf-8", "replace"))
            elif part == 16:
                text = value
        with suppress(ValueError, RecursionError):
            row["/".join(keys)] = parse_json(text)
    return row
