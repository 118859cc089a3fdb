"""Files as bytes, and bytes as JSON Lines, JSON documents and rows of CSV.

gzip and zstd are unpacked, and the byte order mark that some editors write is skipped. NaN and Infinity,
which Python writes into JSON, are read. The separator of a CSV file is comma, semicolon or tab, whichever the
first line has most of; its cells are texts.
"""

import csv
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from search_to_signal.base.errors import ConfigError, RecordError, RunDirectoryError, reason
from search_to_signal.records.files import open_regular

_PIECE = 1024 * 1024
GZIP, ZSTD, MARK = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf"
# Unpacked bytes of a packed file: so many, and so many times its size. Repetitive logs come to 100 times.
ROOM, GROWTH = 256 * 1024 * 1024, 250


# What reading raises where a file is cut off, damaged or no text; zstd of Python 3.14 has its own.
DAMAGED: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, UnicodeDecodeError)
with suppress(ImportError):
    DAMAGED = (*DAMAGED, import_module("compression.zstd").ZstdError)


def ends_early(error: Exception) -> bool:
    """Whether a packed file was read to where it ends early: its writer was stopped, or still writes."""
    return isinstance(error, EOFError) or "Truncated" in str(error)


def regular(path: Path) -> io.BufferedReader:
    """A file to read. Raises RecordError where it cannot be opened, or is none: reading a pipe never ends."""
    try:
        return open_regular(path, sys.maxsize, "give a log file or a directory of them")
    except RunDirectoryError as error:
        raise RecordError(str(error)) from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """The unpacked bytes of a file, after a byte order mark.

    Raises RecordError for what is no file, and for one that unpacks to far more than it holds; ConfigError
    for zstd where nothing reads it. Damage shows while the bytes are read (``DAMAGED``).
    """
    with regular(path) as file, _unpacked(path, file) as stream:
        if stream.peek(len(MARK)).startswith(MARK):
            stream.read(len(MARK))
        yield stream


def start_of(path: Path, size: int) -> bytes:
    """The first unpacked bytes; of a packed file that ends early those that it has.

    Errors as in ``opened``, and RecordError for damage.
    """
    pieces: list[bytes] = []
    try:
        with opened(path) as stream:
            while piece := stream.read1(min(size, _PIECE)):
                pieces.append(piece)
                size -= len(piece)
    except DAMAGED as error:
        if not ends_early(error):
            raise _unreadable(path, error) from error
    return b"".join(pieces)


def _unreadable(path: Path, error: Exception) -> RecordError:
    return RecordError(f"cannot read {path} ({reason(error)}): give a log file or a directory of them")


class _Bounded(io.RawIOBase):
    """Unpacked bytes, up to a number in proportion to those that are packed."""

    def __init__(self, path: Path, stream: Any, size: int) -> None:
        self._path, self._stream, self._left = path, stream, ROOM + GROWTH * size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read1(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise RecordError(
                f"{self._path} unpacks to more than {GROWTH} times its size: unpack it where you trust it"
            )
        buffer[: len(data)] = data
        return len(data)


def _unpacked(path: Path, file: io.BufferedReader) -> Any:
    start, size = file.peek(4)[:4], os.fstat(file.fileno()).st_size
    if start.startswith(GZIP):
        stream: Any = gzip.GzipFile(fileobj=file)
    elif start == ZSTD:
        stream = _zstd(path, file)
    else:
        return file
    return io.BufferedReader(_Bounded(path, stream, size), 256 * 1024)


def _zstd(path: Path, file: io.BufferedReader) -> Any:
    # Python itself reads zstd from 3.14 on.
    with suppress(ImportError):
        return import_module("compression.zstd").open(file, "rb")
    with suppress(ImportError):
        return import_module("pyarrow").CompressedInputStream(file, "zstd")
    raise ConfigError(
        f"{path} is packed with zstd, which Python before 3.14 cannot read: install "
        "search-to-signal[parquet], whose pyarrow can, or unpack it by `zstd -d`"
    )


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
    return not last.endswith(b"\n") and not _is_json(last)


def records_of(path: Path, lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and record of each line that is not blank; as in ``read_lines``."""
    for number, line in enumerate(io.BytesIO(lines.text), lines.first):
        if line.strip() and (line.endswith(b"\n") or _is_json(line)):
            try:
                record = parse_json(line)
            except (ValueError, RecursionError) as error:
                raise RecordError(
                    f"{path}:{number}: not JSON ({error}); repair the line, or remove it"
                ) from error
            if not isinstance(record, dict):
                raise RecordError(f"{path}:{number}: not a JSON object; a log has one object per line")
            yield number, record


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


def _is_json(line: bytes) -> bool:
    with suppress(ValueError, RecursionError):
        parse_json(line)
        return True
    return False


def refuse_dense(where: str, text: bytes) -> None:
    """Raise RecordError for JSON that is little but brackets, and takes far more memory than its length."""
    if len(text) > _CONTAINERS and text.count(b"[") + text.count(b"{") > _CONTAINERS + len(text) // _SPARSE:
        raise RecordError(f"{where}: millions of lists or objects that are nearly all empty; is this a log?")


def parse_json(text: bytes) -> Any:
    """Parse JSON, with NaN and Infinity. Raises ValueError, or RecursionError for what is nested too deep."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(text)


def json_object(text: object) -> dict[str, Any]:
    """The object that a text is in JSON; empty for anything else."""
    with suppress(ValueError, RecursionError):
        if isinstance(text, str | bytes):
            found = parse_json(text.encode() if isinstance(text, str) else text)
            return found if isinstance(found, dict) else {}
    return {}


LARGEST_DOCUMENT = 1024 * 1024 * 1024


def read_document(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON file: the list itself, or the list under ``traces``. The file is held whole.

    Raises RecordError for a file that is no JSON, cut off, over a gigabyte, or without such a list.
    """
    text = start_of(path, LARGEST_DOCUMENT + 1)
    if len(text) > LARGEST_DOCUMENT:
        raise RecordError(
            f"{path} is one JSON document of over {LARGEST_DOCUMENT} bytes; write it as JSON Lines"
        )
    refuse_dense(str(path), text)
    try:
        document = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: not JSON, or cut off ({error}); copy the file again") from error
    records = document.get("traces") if isinstance(document, dict) else document
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise RecordError(f"{path}: no list of records; a log is a list of JSON objects")
    return records


SUFFIXES = (".csv", ".tsv")
# Characters of a cell, and bytes of a line.
_LONGEST = 64 * 1024 * 1024
_UNREADABLE: tuple[type[Exception], ...] = (*DAMAGED, csv.Error)
# A response may be longer than the 131,072 characters that csv allows a cell. The limit belongs to the
# process: readers that set it back let one another's limit slip when they end in another order.
csv.field_size_limit(_LONGEST)


def csv_columns(path: Path) -> tuple[str, ...]:
    """Names of the columns in order. Raises RecordError for a file that is no text."""
    if record := next((record for _, record in read_csv(path)), None):
        return tuple(record)
    with opened(path) as stream:
        return tuple(next(_rows(path, stream), _Row(0, [])).cells)


def read_csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number (from 1, the last of a row's lines) and record; an empty cell is None.

    A last row that was cut is left out. Raises RecordError, naming the line, for a row with more or fewer
    cells than the header, and for a file that is damaged or no text.
    """
    with opened(path) as stream:
        rows = _rows(path, stream)
        header = next(rows, _Row(0, [])).cells
        if len(set(header)) < len(header):
            raise RecordError(f"{path}:1: two columns have one name: rename one of {', '.join(header)}")
        for number, cells, ended in rows:
            if len(cells) < len(header) and not ended:
                return
            if len(cells) != len(header):
                raise RecordError(
                    f"{path}:{number}: {len(cells)} cells under {len(header)} names: quote cells that hold "
                    "the separator, or repair the row"
                )
            yield number, {name: cell or None for name, cell in zip(header, cells, strict=True)}


def cut_row(path: Path) -> bool:
    """Whether the last row of a file was cut: its writer was stopped, or still writes."""
    with opened(path) as stream:
        rows = _rows(path, stream)
        last = header = next(rows, _Row(0, []))
        for row in rows:
            last = row
    return not last.ended and len(last.cells) < len(header.cells)


class _Row(NamedTuple):
    """Number of the last line and cells of a row; no cells for the start of one that never ends."""

    number: int
    cells: list[str]
    ended: bool = True


def _rows(path: Path, stream: io.BufferedIOBase) -> Iterator[_Row]:
    number, last = 0, b"\n"

    def lines() -> Iterator[str]:
        nonlocal last
        for last in iter(lambda: stream.readline(_LONGEST), b""):
            if len(last) == _LONGEST:
                raise csv.Error(f"a line of over {_LONGEST} bytes")
            yield last.decode()

    try:
        text = lines()
        first = next(text, "")
        separator = max(",;\t", key=first.count)
        reader = csv.reader(chain([first], text), delimiter=separator, strict=True)
        for cells in reader:
            number = reader.line_num
            if cells:
                yield _Row(number, cells, last.endswith(b"\n"))
    except _UNREADABLE as error:
        if ends_early(error) or (len(last) < _LONGEST and not last.endswith(b"\n")):
            yield _Row(number + 1, [], ended=False)
            return
        raise RecordError(
            f"{path}:{number + 1}: unreadable from here on ({error}); save it again as CSV in UTF-8"
        ) from error
