"""The record files of a run of the released host."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from search_to_signal.records.writer import RecordWriter


class HostRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Native rewards of one group: as the released host returned them, and as our records give them."""

    step: int
    native: tuple[float, ...]
    recomputed: tuple[float, ...]


@dataclass(frozen=True)
class HostFiles:
    """Open writers; ``host`` takes the host's own rewards."""

    completions: RecordWriter
    steps: RecordWriter
    generations: RecordWriter
    heuristics: RecordWriter
    host: RecordWriter


@contextmanager
def host_files(directory: Path) -> Iterator[HostFiles]:
    """Open the record files of a fresh directory; raises RecordError where one exists already."""
    directory.mkdir(parents=True, exist_ok=True)
    names = ("completions", "steps", "generations", "heuristics", "host")
    with ExitStack() as stack:
        yield HostFiles(*(stack.enter_context(RecordWriter(directory / f"{name}.jsonl")) for name in names))
