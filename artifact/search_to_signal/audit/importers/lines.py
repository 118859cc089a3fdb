"""JSON Lines, one record at a time; NaN and Infinity, which Python writes into JSON, are read."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from search_to_signal.errors import RecordError

LONGEST_LINE = 256 * 1024 * 1024
GZIP = b"\x1f\x8b"


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number (from 1) and record of every line that is not blank.

    Raises RecordError, naming file and line, for a line that is cut off, too long, or no JSON object.
    """
    with _opened(path) as lines:
        number = 0
        while line := _line(path, lines, number + 1):
            number += 1
            if line.strip():
                yield number, _record(path, number, line)


def first_record(path: Path) -> dict[str, Any]:
    """The record of the first line that is not blank; empty for a file without one."""
    return next((record for _, record in read_lines(path)), {})


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as start:
        packed = start.read(2) == GZIP
    return cast(IO[bytes], gzip.open(path, "rb")) if packed else path.open("rb")


def _line(path: Path, lines: IO[bytes], number: int) -> bytes:
    try:
        line = lines.readline(LONGEST_LINE)
    except (EOFError, OSError, zlib.error) as error:
        raise RecordError(
            f"{path}:{number}: unreadable from here on ({error}); copy the file again"
        ) from error
    if len(line) == LONGEST_LINE:
        raise RecordError(
            f"{path}:{number}: the line is longer than {LONGEST_LINE} bytes; is this JSON Lines?"
        )
    return line


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except (ValueError, RecursionError) as error:
        cut = "" if line.endswith(b"\n") else ": the last line is cut off"
        raise RecordError(
            f"{path}:{number}: not JSON ({error}){cut}; let the writer finish, or remove the line"
        ) from error
    if not isinstance(record, dict):
        raise RecordError(f"{path}:{number}: not a JSON object; a log has one object per line")
    return record


def parse_json(text: bytes) -> Any:
    """Parse JSON, with NaN and Infinity. Raises ValueError, or RecursionError for what is nested too deep."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(text)
