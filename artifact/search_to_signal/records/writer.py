"""Append records, one canonical JSON line each; a line is with the system before the next one is made."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from search_to_signal.base.errors import RecordError
from search_to_signal.records.files import write_all

_BLOCK = 1 << 20


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first ``bytes`` bytes of a record file, and their SHA-256."""

    bytes: int
    sha256: str


START = Mark(0, hashlib.sha256().hexdigest())


class RecordWriter:
    """Writes one record file. A context manager; refuses a file that already exists.

    With a ``mark`` it goes on with that file instead: one that does not begin with what was marked is
    refused, and ``cut`` removes what stands behind the mark; call it before the first ``write``.
    """

    def __init__(self, path: Path, mark: Mark | None = None) -> None:
        self._path = path
        self._from = mark
        self._descriptor: int | None = None
        self._digest = hashlib.sha256()
        self._length = 0

    def __enter__(self) -> "RecordWriter":
        """Open the file; raises RecordError, before a byte changes, for one that is not as described."""
        fresh = self._from is None
        flags = os.O_EXCL | os.O_CREAT if fresh else os.O_CREAT if self._from == START else 0
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | flags, 0o666)
        except FileExistsError as error:
            raise RecordError(
                f"{self._path} already exists and records are never overwritten: use another directory"
            ) from error
        except FileNotFoundError as error:
            raise self._damaged("it is missing") from error
        try:
            self._skip(self._descriptor, self._from or START)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def cut(self) -> None:
        """Remove what stands behind the mark: whole lines that will be written again, or half of one."""
        if os.fstat(self._open).st_size > self._length:
            os.ftruncate(self._open, self._length)

    def write(self, record: msgspec.Struct) -> None:
        """Append one record; raises OSError when the disk is full."""
        line = msgspec.json.encode(record) + b"\n"
        write_all(self._open, line)
        self._digest.update(line)
        self._length += len(line)

    def mark(self) -> Mark:
        """Have everything written so far on disk, and say what that is."""
        os.fsync(self._open)
        return Mark(self._length, self._digest.hexdigest())

    @property
    def _open(self) -> int:
        if self._descriptor is None:
            raise RecordError(f"{self._path} is not open: use the writer as a context manager")
        return self._descriptor

    def _skip(self, descriptor: int, mark: Mark) -> None:
        while missing := mark.bytes - self._length:
            block = os.read(descriptor, min(missing, _BLOCK))
            if not block:
                raise self._damaged(f"it has {self._length} bytes, its checkpoint says {mark.bytes}")
            self._digest.update(block)
            self._length += len(block)
        if self._digest.hexdigest() != mark.sha256:
            raise self._damaged(f"its first {mark.bytes} bytes changed after its checkpoint was written")

    def _damaged(self, how: str) -> RecordError:
        return RecordError(
            f"{self._path} is damaged ({how}): restore it from a copy, or move the run away to begin again"
        )

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@dataclass(frozen=True)
class RunFiles:
    """Open writers of a run directory; ``preferences`` of a run that learns from pairs."""

    directory: Path
    completions: RecordWriter
    steps: RecordWriter
    generations: RecordWriter
    heuristics: RecordWriter
    timings: RecordWriter
    evaluations: RecordWriter
    preferences: RecordWriter | None = None

    def marks(self) -> dict[str, Mark]:
        """Have every file on disk as it is, and say what each of them holds."""
        files = vars(self).items()
        return {name: file.mark() for name, file in files if isinstance(file, RecordWriter)}
