"""A mark in a results directory of which runs are missing: what is made of it says so."""

from pathlib import Path

import msgspec

from search_to_signal.records.files import read_json, write_atomically

PARTIAL = "partial.json"


class Partial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many runs there are, and how many were to be recorded."""

    recorded: int
    planned: int

    @property
    def words(self) -> str:
        """For people."""
        return f"PARTIAL: {self.recorded} of {self.planned} planned runs are recorded"


def write_partial(directory: Path, mark: Partial) -> None:
    """Mark a directory."""
    write_atomically(directory / PARTIAL, msgspec.json.encode(mark) + b"\n")


def read_partial(directory: Path) -> Partial | None:
    """The mark of a directory, None where it has none; raises RunDirectoryError for an unreadable one."""
    path = directory / PARTIAL
    return read_json(path, Partial, f"{path} went away") if path.is_file() else None
