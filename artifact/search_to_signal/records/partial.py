"""A mark in a results directory of which runs are missing: what is made of it says so."""

from pathlib import Path

import msgspec

from search_to_signal.records.files import read_json, write_atomically

PARTIAL = "partial.json"


class Gap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many runs of a layer there are, and how many were to be recorded.

    A finished run that waits for an earlier seed is not there: it is recorded, and not packed.
    ``closed`` names the amendment by which the rest is no longer waited for; empty where it is.
    """

    recorded: int
    planned: int
    closed: str = ""

    @property
    def words(self) -> str:
        """For people."""
        if self.closed:
            return f"closed: {self.recorded} of {self.planned} planned runs, {self.closed}"
        return f"PARTIAL: {self.recorded} of {self.planned} planned runs are there"


class Partial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The layers that lack runs."""

    gaps: dict[str, Gap]

    @property
    def waits(self) -> bool:
        """Whether runs are still to come."""
        return any(not gap.closed for gap in self.gaps.values())

    @property
    def words(self) -> str:
        """For people."""
        return "; ".join(f"{layer} {gap.words}" for layer, gap in sorted(self.gaps.items()))

    @property
    def awaited(self) -> str:
        """What to say of the layers whose runs are still to come, empty where none is."""
        return Partial({layer: gap for layer, gap in self.gaps.items() if not gap.closed}).words

    def of(self, layer: str) -> str:
        """What to say of a layer, empty where it has all its runs."""
        return self.gaps[layer].words if layer in self.gaps else ""


def write_partial(directory: Path, mark: Partial) -> None:
    """Mark a directory."""
    write_atomically(directory / PARTIAL, msgspec.json.encode(mark) + b"\n")


def read_partial(directory: Path) -> Partial | None:
    """The mark of a directory, None where it has none; raises RunDirectoryError for an unreadable one."""
    path = directory / PARTIAL
    return read_json(path, Partial, f"{path} went away") if path.is_file() else None
