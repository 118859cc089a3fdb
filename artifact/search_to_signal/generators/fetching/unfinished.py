"""A directory made under another name and renamed when it is whole: what has its name is finished."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from search_to_signal.errors import RunDirectoryError


@contextmanager
def renamed_when_whole(out: Path) -> Iterator[Path]:
    """Yield an empty directory next to ``out`` that gets its name at the end, and is removed on any error.

    What a killed process left there is removed first. Raises RunDirectoryError for a link in its
    place, and while another one makes it.
    """
    out = Path(os.path.abspath(out))
    made = _missing_parents(out)
    work, lock = out.with_name(f".{out.name}.unfinished"), None
    # A signal may come as soon as the first directory is there.
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(work)
        _empty(work)
        yield work
        os.rename(work, out)
    except BaseException as error:
        if lock is not None:
            shutil.rmtree(work, ignore_errors=True)
        elif not isinstance(error, RunDirectoryError):  # which says that it is another process's
            made = [work, *made]
        for empty in made:
            with suppress(OSError):
                empty.rmdir()
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _missing_parents(path: Path) -> list[Path]:
    return [parent for parent in path.parents if not parent.exists()]


def _locked(work: Path) -> int:
    """The open directory; the system lets go of the lock when the process ends, however it ends."""
    # What is in it will be removed: through a link that would be somebody's own files.
    if work.is_symlink():
        raise RunDirectoryError(f"{work} is a symbolic link, and would be emptied: remove it")
    work.mkdir(exist_ok=True)
    descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have renamed or removed it between the calls.
        if os.path.samestat(os.fstat(descriptor), os.stat(work)):
            return descriptor
    os.close(descriptor)
    raise RunDirectoryError(f"another process is writing {work}: wait for it, or end it")


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
