"""Two processes never write one run directory: whoever writes it holds a lock on its configuration file."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from search_to_signal.errors import RunDirectoryError
from search_to_signal.experiments.configuration import CONFIG

_POLL_S = 0.2


@contextmanager
def owned(directory: Path, wait_s: float = 0.0) -> Iterator[int]:
    """Hold a run directory, made if need be; yields the open ``config.json``, which may be empty.

    The system lets go of the lock when the process ends, however it ends. Raises RunDirectoryError when
    another process still writes the directory after ``wait_s`` seconds.
    """
    directory.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    while (descriptor := _locked(directory / CONFIG)) is None:
        if time.monotonic() >= deadline:
            raise RunDirectoryError(f"another process is writing {directory}: wait for it, or end it")
        time.sleep(_POLL_S)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The directory may have been moved away between the two calls: then this is the lock of another.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
