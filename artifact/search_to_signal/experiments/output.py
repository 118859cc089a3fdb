"""The files of one run directory while it is being written."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from search_to_signal.evaluation.candidates import Run
from search_to_signal.records.files import sync_directory
from search_to_signal.records.writer import Mark, RecordWriter

# What only an unfinished run needs; it goes when the run is complete.
CHECKPOINTS = "checkpoint"
# Where each kind of record goes, within the run directory.
NAMES = {
    "completions": "completions.jsonl",
    "steps": "steps.jsonl",
    "generations": "generations.jsonl",
    "heuristics": "heuristics.jsonl",
    "timings": "timings.jsonl",
    "evaluations": f"{CHECKPOINTS}/evaluations.jsonl",
}


class EvaluationNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the evaluation pool knows of one program, by the pool's key; the last note of a key holds."""

    key: str
    run: Run


@dataclass(frozen=True)
class RunFiles:
    """Open writers of a run directory."""

    directory: Path
    completions: RecordWriter
    steps: RecordWriter
    generations: RecordWriter
    heuristics: RecordWriter
    timings: RecordWriter
    evaluations: RecordWriter

    def marks(self) -> dict[str, Mark]:
        """Have every file on disk as it is, and say what each of them holds."""
        return {name: getattr(self, name).mark() for name in NAMES}


@contextmanager
def run_files(directory: Path, marks: Mapping[str, Mark] | None = None) -> Iterator[RunFiles]:
    """Open every record file: of a fresh run directory, or where its ``marks`` say.

    Raises RecordError, before a byte changes, when a file is there already or is not as marked.
    """
    (directory / CHECKPOINTS).mkdir(exist_ok=True)
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(RecordWriter(directory / file, marks[name] if marks else None))
            for name, file in NAMES.items()
        }
        for writer in writers.values():
            writer.cut()
        sync_directory(directory)
        yield RunFiles(directory, **writers)
