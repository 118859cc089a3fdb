"""Files that survive a crash: what has its name is whole, and what was synced is on disk."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from search_to_signal.errors import UNREADABLE, RunDirectoryError, reason

# A name that ends so is a file that was never finished.
TEMPORARY = ".tmp"
# Directories within directories: no record lies deeper, and making them calls itself for each.
_DEEPEST = 100
_KINDS = {stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket"}
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
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise RunDirectoryError(missing) from error
    except (OSError, *UNREADABLE) as error:
        raise RunDirectoryError(f"cannot read {path}: {reason(error)}; restore the file") from error


def is_component(name: str) -> bool:
    """Whether a name is one component of a path: no way up, down or out, and nothing that a disk refuses."""
    surrogates = any("\ud800" <= character <= "\udfff" for character in name)
    return name not in ("", ".", "..") and not {"/", "\0"} & set(name) and not surrogates


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


def special_files(directory: Path) -> dict[str, str]:
    """What below a directory is neither a regular file nor a directory: its kind by relative path, sorted.

    A link leads out of what was checked, and reading a pipe never ends, so no record may be either.
    """
    special = (entry for entry in entries_below(directory) if not entry.is_file(follow_symlinks=False))
    kinds = {Path(entry).relative_to(directory).as_posix(): _kind(entry) for entry in special}
    return dict(sorted(kinds.items()))


def _kind(entry: os.DirEntry[str]) -> str:
    return _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode), "special file")


def refuse_special_files(directory: Path) -> None:
    """Raise RunDirectoryError that names a link, pipe, socket or device below a directory."""
    for name, kind in special_files(directory).items():
        raise RunDirectoryError(f"{directory / name} is a {kind}: only regular files are read; remove it")


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
