"""Files as bytes: gzip and zstd are unpacked, and the byte order mark that some editors write is skipped."""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from search_to_signal.errors import ConfigError, RecordError, RunDirectoryError, reason
from search_to_signal.records.files import open_regular

_PIECE = 1024 * 1024
GZIP, ZSTD, MARK = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf"
# Unpacked bytes of a packed file: so many, and so many times its size. Repetitive logs come to 100 times.
ROOM, GROWTH = 256 * 1024 * 1024, 250


def _damage() -> tuple[type[Exception], ...]:
    """What reading raises where a file is cut off, damaged or no text; zstd of Python 3.14 has its own."""
    known: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, UnicodeDecodeError)
    with suppress(ImportError):
        known = (*known, import_module("compression.zstd").ZstdError)
    return known


DAMAGED = _damage()


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


def _by_python(zstd: ModuleType, file: io.BufferedReader) -> Any:
    return zstd.open(file, "rb")


def _by_arrow(arrow: ModuleType, file: io.BufferedReader) -> Any:
    return arrow.CompressedInputStream(file, "zstd")


# Python itself reads zstd from 3.14 on.
_ZSTD: Mapping[str, Callable[[ModuleType, io.BufferedReader], Any]] = {
    "compression.zstd": _by_python,
    "pyarrow": _by_arrow,
}


def _zstd(path: Path, file: io.BufferedReader) -> Any:
    for name, reader in _ZSTD.items():
        try:
            return reader(import_module(name), file)
        except ImportError:
            continue
    raise ConfigError(
        f"{path} is packed with zstd, which Python before 3.14 cannot read: install "
        "search-to-signal[parquet], whose pyarrow can, or unpack it by `zstd -d`"
    )
