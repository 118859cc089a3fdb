"""Files as bytes: gzip and zstd are unpacked, and the byte order mark that some editors write is skipped."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from search_to_signal.errors import ConfigError, RecordError

_PIECE = 1024 * 1024
GZIP, ZSTD, MARK = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf"


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


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """The unpacked bytes of a file, after a byte order mark.

    Raises ConfigError for zstd where nothing reads it; damage shows while the bytes are read (``DAMAGED``).
    """
    with path.open("rb") as file:
        start = file.read(4)
    with _unpacked(path, start) as stream:
        if stream.peek(len(MARK)).startswith(MARK):
            stream.read(len(MARK))
        yield stream


def start_of(path: Path, size: int) -> bytes:
    """The first unpacked bytes; of a packed file that ends early those that it has.

    Raises RecordError for a file that cannot be read, ConfigError as ``opened`` does.
    """
    pieces: list[bytes] = []
    try:
        with opened(path) as stream:
            while piece := stream.read1(min(size, _PIECE)):
                pieces.append(piece)
                size -= len(piece)
    except DAMAGED as error:
        if not ends_early(error):
            reason = getattr(error, "strerror", None) or error
            raise RecordError(
                f"cannot read {path} ({reason}): give a log file or a directory of them"
            ) from error
    return b"".join(pieces)


def _unpacked(path: Path, start: bytes) -> Any:
    if start.startswith(GZIP):
        return gzip.open(path, "rb")
    return _zstd(path) if start == ZSTD else path.open("rb")


def _by_python(zstd: ModuleType, path: Path) -> Any:
    return zstd.open(path, "rb")


def _by_arrow(arrow: ModuleType, path: Path) -> Any:
    return io.BufferedReader(arrow.CompressedInputStream(arrow.OSFile(str(path), "rb"), "zstd"))


# Python itself reads zstd from 3.14 on.
_ZSTD: Mapping[str, Callable[[ModuleType, Path], Any]] = {
    "compression.zstd": _by_python,
    "pyarrow": _by_arrow,
}


def _zstd(path: Path) -> Any:
    for name, reader in _ZSTD.items():
        try:
            return reader(import_module(name), path)
        except ImportError:
            continue
    raise ConfigError(
        f"{path} is packed with zstd, which Python before 3.14 cannot read: install "
        "search-to-signal[parquet], whose pyarrow can, or unpack it by `zstd -d`"
    )
