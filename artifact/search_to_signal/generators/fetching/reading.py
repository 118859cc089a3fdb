"""Files read once, in blocks: hashed, copied where asked for, with progress."""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from search_to_signal.errors import RunDirectoryError
from search_to_signal.progress import Progress

_BLOCK = 1 << 22
_MB = 1_000_000


class Reading:
    """Reads of one task's bytes, reported as megabytes done of all."""

    def __init__(self, task: str, size: int, progress: Progress) -> None:
        self._task, self._size, self._progress, self._done = task, size, progress, 0
        self._tell()

    def copy(self, files: Sequence[Path], into: BinaryIO | None = None) -> str:
        """SHA-256 of the files, one after the other, which are also written ``into`` a stream."""
        digest = hashlib.sha256()
        for block in _blocks(files):
            digest.update(block)
            if into is not None:
                into.write(block)
            self._done += len(block)
            self._tell()
        return digest.hexdigest()

    def _tell(self) -> None:
        total = max(1, self._size // _MB)
        done = total if self._done >= self._size else min(self._done // _MB, total - 1)
        self._progress.update(self._task, done, total, "MB")


def total_size(files: Sequence[Path]) -> int:
    """Bytes of all of them."""
    return sum(path.stat().st_size for path in files)


def refuse_little_room(directory: Path, size: int) -> None:
    """Raise RunDirectoryError where a disk has room for fewer bytes, before minutes of work find out."""
    free = shutil.disk_usage(directory).free
    if free < size:
        raise RunDirectoryError(
            f"cannot write below {directory.parent}: {size / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are "
            "free: make room, then give the command again"
        )


def _blocks(files: Sequence[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb", buffering=0) as stream:
            while block := stream.read(_BLOCK):
                yield block


def remove_cached(path: Path) -> None:
    """Remove a file of the hub's cache, which links to where its bytes are."""
    path.resolve().unlink(missing_ok=True)
    path.unlink(missing_ok=True)
