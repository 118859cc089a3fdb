"""The files of one run directory while it is written: record files, and checkpoints to go on from."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from search_to_signal.config import canonical_json
from search_to_signal.errors import UNREADABLE, RunDirectoryError
from search_to_signal.evaluation.candidates import Run
from search_to_signal.learner.base import Learner
from search_to_signal.records.files import sync_directory, write_atomically
from search_to_signal.records.manifest import Timing, sum_timings
from search_to_signal.records.preferences import PREFERENCES
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS, TIMINGS, read_records
from search_to_signal.records.schema import StepTiming
from search_to_signal.records.writer import Mark, RecordWriter, RunFiles

# What only an unfinished run needs; it goes when the run is complete.
CHECKPOINTS = "checkpoint"
_KEPT = 2  # checkpoints
# Where each kind of record goes, within the run directory.
NAMES = {
    "completions": COMPLETIONS,
    "steps": STEPS,
    "generations": GENERATIONS,
    "heuristics": HEURISTICS,
    "timings": TIMINGS,
    "evaluations": f"{CHECKPOINTS}/evaluations.jsonl",
}
# Of a rule that learns from pairs.
PAIRED_NAMES = {**NAMES, "preferences": PREFERENCES}


class EvaluationNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the evaluation pool knows of one program, by the pool's key; the last note of a key holds."""

    key: str
    run: Run


@contextmanager
def run_files(
    directory: Path, marks: Mapping[str, Mark] | None = None, paired: bool = False
) -> Iterator[RunFiles]:
    """Open every record file, that of pairs where asked: of a fresh directory, or where its ``marks`` say.

    Raises RecordError, before a byte changes, when a file is there already or is not as marked.
    """
    (directory / CHECKPOINTS).mkdir(exist_ok=True)
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(RecordWriter(directory / file, marks[name] if marks else None))
            for name, file in (PAIRED_NAMES if paired else NAMES).items()
        }
        for writer in writers.values():
            writer.cut()
        sync_directory(directory)
        yield RunFiles(directory, **writers)


class RunCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """After ``done`` groups. ``learner`` is the SHA-256 of the learner's file, None when frozen."""

    done: int
    files: dict[str, Mark]
    learner: str | None


def save_checkpoint(files: RunFiles, done: int, learner: Learner | None) -> None:
    """Write a checkpoint and forget all but the last two; every moment of this can be the last one.

    Records and learner are on disk before the file that refers to them is renamed into place.
    """
    folder, marks, digest = files.directory / CHECKPOINTS, files.marks(), None
    if learner is not None:
        data = learner.dump()
        digest = hashlib.sha256(data).hexdigest()
        write_atomically(_learner(folder, done), data)
    checkpoint = RunCheckpoint(done=done, files=marks, learner=digest)
    write_atomically(folder / f"{done:08d}.json", canonical_json(checkpoint))
    for old in _files(folder)[:-_KEPT]:
        os.unlink(old)
        _learner(folder, int(old.stem)).unlink(missing_ok=True)


def newest_checkpoint(directory: Path) -> tuple[RunCheckpoint, bytes | None] | None:
    """The last whole checkpoint of a run directory with its learner; None when none was ever made.

    One whose learner's file was left out is whole without it: the records make that learner again. Raises
    RunDirectoryError when there are some and none is whole.
    """
    folder = directory / CHECKPOINTS
    files = _files(folder)
    for file in reversed(files):
        if (whole := _read(folder, file)) is not None:
            return whole
    if files:
        raise RunDirectoryError(
            f"no checkpoint in {folder} is whole: restore it from a copy, or run again without --resume, "
            "which sets the run aside"
        )
    return None


def _read(folder: Path, file: Path) -> tuple[RunCheckpoint, bytes | None] | None:
    try:
        checkpoint = msgspec.json.decode(file.read_bytes(), type=RunCheckpoint)
    except (FileNotFoundError, *UNREADABLE):
        return None
    dumped = _learner(folder, checkpoint.done)
    learner = dumped.read_bytes() if checkpoint.learner and dumped.is_file() else None
    if learner is not None and hashlib.sha256(learner).hexdigest() != checkpoint.learner:
        return None
    return checkpoint, learner


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _learner(folder: Path, done: int) -> Path:
    return folder / f"{done:08d}.safetensors"


def read_timing(directory: Path) -> Timing:
    """The timing of a run directory, summed over its steps."""
    return sum_timings(list(read_records(directory / TIMINGS, StepTiming)))
