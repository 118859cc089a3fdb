"""The files of one run directory while it is being written."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from search_to_signal.records.writer import RecordWriter


@dataclass(frozen=True)
class RunFiles:
    """Open writers of a run directory."""

    directory: Path
    completions: RecordWriter
    steps: RecordWriter
    generations: RecordWriter
    heuristics: RecordWriter
    timings: RecordWriter


@contextmanager
def run_files(directory: Path) -> Iterator[RunFiles]:
    """Open every record file of a fresh run directory."""
    names = ("completions", "steps", "generations", "heuristics", "timings")
    with ExitStack() as stack:
        writers = [stack.enter_context(RecordWriter(directory / f"{name}.jsonl")) for name in names]
        yield RunFiles(directory, *writers)
