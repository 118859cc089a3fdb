"""Files that survive a crash, and files from anywhere: what each is is asked before it is read.

Records are appended, one canonical JSON line each; a line is with the system before the next one is made.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BufferedReader, FileIO
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from search_to_signal.base.errors import UNREADABLE, RecordError, RunDirectoryError, reason

# A name that ends so is a file that was never finished.
TEMPORARY = ".tmp"
# Directories within directories: no record lies deeper, and making them calls itself for each.
_DEEPEST = 100
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}
# Bytes of a file, of what is held in memory at once, and of a line. Sparse files take no room on a disk.
LARGEST, WHOLE, LINE = 1 << 31, 1 << 28, 1 << 26
T = TypeVar("T")
_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


class StorageError(RunDirectoryError):
    """A disk takes no more; for checks alone, which blame it on nothing that they read."""


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; raises OSError, with some of them written, where the system takes no more."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file's contents: a reader finds the old or the new ones, even after a power failure."""
    temporary = path.with_name(path.name + TEMPORARY)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    sync_directory(path.parent)


def write_json(path: Path, value: msgspec.Struct) -> None:
    """Write a JSON file atomically, in readable canonical form."""
    text = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2)
    write_atomically(path, text + b"\n")


def read_json(path: Path, kind: type[T], missing: str) -> T:
    """Decode a JSON file; raises RunDirectoryError, which says ``missing`` where there is no such file."""
    try:
        return msgspec.json.decode(read_regular(path), type=kind)
    except FileNotFoundError as error:
        raise RunDirectoryError(missing) from error
    except (OSError, *UNREADABLE) as error:
        raise RunDirectoryError(f"cannot read {path}: {reason(error)}; restore the file") from error


def is_component(name: str) -> bool:
    """Whether a name is one component of a path: no way up, down or out, and nothing that a disk refuses."""
    return name not in ("", ".", "..") and not {"/", "\0"} & set(name) and not _has_surrogates(name)


def _has_surrogates(name: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in name)


def is_place(name: str) -> bool:
    """Whether a name is a relative path whose every part is a component, and no deeper than records lie."""
    parts = name.split("/")
    return len(parts) <= _DEEPEST and all(is_component(part) for part in parts)


def entries_below(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below a directory but the directories, in no order; no link is followed."""
    folders = [str(directory)] if directory.is_dir() else []
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry


def files_named(directory: Path, name: str) -> list[Path]:
    """Every regular file of that name below a directory, however deep, sorted."""
    entries = (entry for entry in entries_below(directory) if entry.name == name)
    return sorted(Path(entry) for entry in entries if entry.is_file(follow_symlinks=False))


def refuse_special_files(directory: Path) -> None:
    """Raise RunDirectoryError that names what below a directory ``open_regular`` refuses, or a link.

    A link leads out of what was checked.
    """
    above = len(str(directory))
    refused = ((entry.path, _unfit_entry(entry, above)) for entry in entries_below(directory))
    special = sorted((path, problem) for path, problem in refused if problem)
    for path, problem in special:
        more = f" (and {len(special) - 1} more)" if special[1:] else ""
        raise RunDirectoryError(f"{path} {problem}; remove it{more}")


def _unfit_entry(entry: os.DirEntry[str], above: int) -> str:
    name = entry.path[above:]
    if "\n" in name or _has_surrogates(name):
        return "has a name with a line break or an undecodable byte, which a list of checksums cannot hold"
    return _unfit(entry.stat(follow_symlinks=False), LARGEST)


def _unfit(status: os.stat_result, largest: int) -> str:
    """Why a file is not read, empty where it is: a pipe and a device have no end."""
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
        return f"is {kind}: only regular files are read"
    if status.st_size > largest:
        return f"has {status.st_size} bytes: files of more than {largest} are not read"
    return ""


def open_regular(path: Path, largest: int = LARGEST, advice: str = "remove it") -> BufferedReader:
    """Open a file to read its bytes; raises RunDirectoryError for what is no file of such a size."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise RunDirectoryError(f"{path} is a socket: only regular files are read; {advice}") from error
        raise
    if problem := _unfit(os.fstat(descriptor), largest):
        os.close(descriptor)
        raise RunDirectoryError(f"{path} {problem}; {advice}")
    return BufferedReader(FileIO(descriptor), 1 << 17)


def read_regular(path: Path, largest: int = WHOLE) -> bytes:
    """The bytes of a file as large as it is now; raises as ``open_regular``."""
    with open_regular(path, largest) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_lines(path: Path, longest: int = LINE) -> Iterator[bytes]:
    """Yield the lines of a file; raises as ``open_regular``, and RunDirectoryError for one without an end."""
    with open_regular(path) as file:
        for line in iter(partial(file.readline, longest), b""):
            if len(line) == longest:
                raise RunDirectoryError(f"{path} has a line of {longest} bytes or more: restore the file")
            yield line


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors(directory: Path, then: str) -> Iterator[None]:
    """A full or failing disk is a StorageError of one line; every other OSError passes.

    ``then`` is what to do once it can be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _STORAGE:
            raise
        remedy = "have it writable" if error.errno == errno.EROFS else "make room"
        raise StorageError(
            f"cannot write below {directory} ({error.strerror}): {remedy}, then {then}"
        ) from error


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
