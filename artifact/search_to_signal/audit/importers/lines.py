"""JSON Lines, one record at a time; NaN and Infinity, which Python writes into JSON, are read."""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from search_to_signal.audit.importers.streams import DAMAGED, GZIP, ZSTD, ends_early, opened, regular
from search_to_signal.errors import RecordError

LONGEST_LINE = 256 * 1024 * 1024
# Bytes that are decoded at once: few enough to stay in a processor's cache.
CHUNK = 256 * 1024
# Lists and objects in one text, each of which takes some 60 bytes: so many, and one in so many bytes.
_CONTAINERS, _SPARSE = 1_000_000, 12


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number (from 1) and record of every line that is not blank, but for a last one that is cut.

    Raises RecordError, naming file and line, for a line that is too long, or no JSON object.
    """
    for lines in read_chunks(path):
        yield from records_of(path, lines)


class Lines(NamedTuple):
    """A run of whole lines: the number of the first, from 1, and how many there are."""

    first: int
    size: int
    text: bytes


def read_chunks(path: Path) -> Iterator[Lines]:
    """Yield the lines of a file, about ``CHUNK`` bytes at once; the last may be cut, or nothing at all.

    Raises RecordError where the file is damaged or a line is too long.
    """
    number, pieces, held = 1, list[bytes](), 0
    with opened(path) as stream:
        while block := _block(path, stream, number):
            end = block.rfind(b"\n") + 1
            if end:
                chunk = b"".join([*pieces, block[:end]])
                refuse_dense(f"{path}:{number}", chunk)
                # Several times as fast as counting in bytes.
                count = int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == ord("\n")))
                if not chunk.isspace():
                    yield Lines(number, count, chunk)
                number, pieces, held = number + count, [], 0
            pieces.append(block[end:])
            held += len(pieces[-1])
            if held > LONGEST_LINE:
                raise RecordError(
                    f"{path}:{number}: the line is longer than {LONGEST_LINE} bytes; is this JSON Lines?"
                )
    if held or block is None:
        refuse_dense(f"{path}:{number}", chunk := b"".join(pieces))
        yield Lines(number, 1, chunk)


def cut_end(path: Path) -> bool:
    """Whether the last line or the end of a packed file was cut: its writer was stopped, or still writes."""
    with regular(path) as file:
        packed = file.read(4).startswith((GZIP, ZSTD))
        file.seek(-1, os.SEEK_END)
        if file.read() == b"\n" and not packed:
            return False
    last = b"\n"
    for lines in read_chunks(path):
        last = lines.text
    return not last.endswith(b"\n") and _is_cut(last)


def records_of(path: Path, lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and record of each line that is not blank; as in ``read_lines``."""
    for number, line in enumerate(io.BytesIO(lines.text), lines.first):
        if line.strip() and (line.endswith(b"\n") or not _is_cut(line)):
            yield number, _record(path, number, line)


def first_record(path: Path) -> dict[str, Any]:
    """The record of the first line that is not blank; empty for a file without one."""
    return next((record for _, record in read_lines(path)), {})


def _block(path: Path, stream: io.BufferedIOBase, number: int) -> bytes | None:
    """The next bytes; None where a packed file ends early."""
    try:
        return stream.read1(CHUNK)
    except DAMAGED as error:
        if ends_early(error):
            return None
        raise RecordError(
            f"{path}:{number}: unreadable from here on ({error}); copy the file again"
        ) from error


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}:{number}: not JSON ({error}); repair the line, or remove it") from error
    if not isinstance(record, dict):
        raise RecordError(f"{path}:{number}: not a JSON object; a log has one object per line")
    return record


def _is_cut(line: bytes) -> bool:
    """Whether a line without an end is no JSON."""
    try:
        parse_json(line)
    except (ValueError, RecursionError):
        return True
    return False


def refuse_dense(where: str, text: bytes) -> None:
    """Raise RecordError for JSON that is little but brackets, and takes far more memory than its length."""
    if len(text) > _CONTAINERS and text.count(b"[") + text.count(b"{") > _CONTAINERS + len(text) // _SPARSE:
        raise RecordError(f"{where}: millions of lists or objects with hardly a value; is this a log?")


def parse_json(text: bytes) -> Any:
    """Parse JSON, with NaN and Infinity. Raises ValueError, or RecursionError for what is nested too deep."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(text)
