"""Append records, one canonical JSON line each; a line is on disk before the next one is made."""

from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from search_to_signal.errors import RecordError


class RecordWriter:
    """Writes one record file. A context manager; refuses a file that already exists."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> "RecordWriter":
        """Create the file; raises RecordError when there is one."""
        try:
            self._file = self._path.open("xb")
        except FileExistsError as error:
            raise RecordError(
                f"{self._path} already exists and records are never overwritten: use another directory"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def write(self, record: msgspec.Struct) -> None:
        """Append one record and flush it."""
        if self._file is None:
            raise RecordError(f"{self._path} is not open: use the writer as a context manager")
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()
