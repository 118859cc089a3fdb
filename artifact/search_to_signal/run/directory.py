"""The directory that a run writes: whether it is free, its lock, its first and its last files."""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from search_to_signal.base.errors import UNREADABLE, RunDirectoryError
from search_to_signal.base.settings import canonical_json
from search_to_signal.learner.base import Learner
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.files import (
    LARGEST,
    TEMPORARY,
    Mark,
    RecordWriter,
    RunFiles,
    read_regular,
    sync_directory,
    write_all,
    write_atomically,
)
from search_to_signal.records.manifest import (
    INTERRUPTED,
    MANIFEST,
    Manifest,
    Timing,
    read_manifest,
    sum_timings,
    write_manifest,
)
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS, TIMINGS, read_records
from search_to_signal.records.schema import PREFERENCES, StepTiming
from search_to_signal.run.config import CONFIG
from search_to_signal.sandbox.pool import Run

# Checkpoints of a run, to go on from: how many groups are done, marks of the record files, the learner.

# What only an unfinished run needs; it goes when the run is complete.
CHECKPOINTS = "checkpoint"
_KEPT = 2  # checkpoints


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
            f"every checkpoint in {folder} is damaged: restore one from a copy, or move the run "
            "away to begin again"
        )
    return None


def _read(folder: Path, file: Path) -> tuple[RunCheckpoint, bytes | None] | None:
    try:
        checkpoint = msgspec.json.decode(read_regular(file), type=RunCheckpoint)
    except (FileNotFoundError, *UNREADABLE):
        return None
    dumped = _learner(folder, checkpoint.done)
    learner = read_regular(dumped, LARGEST) if checkpoint.learner and dumped.is_file() else None
    if learner is not None and hashlib.sha256(learner).hexdigest() != checkpoint.learner:
        return None
    return checkpoint, learner


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _learner(folder: Path, done: int) -> Path:
    return folder / f"{done:08d}.safetensors"


Found = TypeVar("Found")

_POLL_S = 0.2


@dataclass(frozen=True)
class Kind(Generic[Found]):
    """A kind of directory: its manifest's file and reader, and the files that may lie there before it."""

    name: str
    manifest: str
    read: Callable[[Path], Found]
    before: tuple[str, ...] = ()


RUN = Kind("run", MANIFEST, read_manifest, (CONFIG,))


def read_own(kind: Kind[Found], directory: Path, ours: Callable[[Found], bool]) -> Found | None:
    """The manifest of what was begun in a directory, None where nothing was.

    Raises RunDirectoryError, touching nothing, where the directory holds anything that is not ``ours``.
    """
    if not directory.exists():
        return None
    if (directory / kind.manifest).is_file():
        manifest = kind.read(directory)
        if ours(manifest):
            return manifest
    elif directory.is_dir() and not _foreign(kind, directory):
        return None
    raise RunDirectoryError(
        f"{directory} already holds another {kind.name}: give another --out, or move it away"
    )


def _foreign(kind: Kind[Any], directory: Path) -> bool:
    """Whether there is more than what a process leaves before its manifest."""
    names = (path.name for path in directory.iterdir())
    return any(name not in kind.before and not name.endswith(TEMPORARY) for name in names)


def is_begun(directory: Path) -> bool:
    """Whether a run in this directory came as far as its manifest; what is before that is no loss."""
    return (directory / MANIFEST).is_file()


def refuse_occupied(directory: Path, resume: bool) -> None:
    """Raise RunDirectoryError, touching nothing, unless this is a place for a run or a run to go on with."""
    if not directory.exists() or (resume and is_begun(directory)):
        return
    if _foreign(RUN, directory):
        if is_begun(directory):
            with lock_directory(directory):
                """Nobody writes it at present."""
        what = "holds no run that can go on" if resume else "is not empty"
        raise RunDirectoryError(f"{directory} {what}: give another --out, or move it away")


def finish(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of a complete run and its checksums; may be called again after it was stopped."""
    write_manifest(directory, manifest)
    if (directory / CHECKPOINTS).exists():
        shutil.rmtree(directory / CHECKPOINTS)
    for path in directory.rglob(f"*{TEMPORARY}"):
        os.unlink(path)
    write_sums(directory)


def begin(directory: Path, descriptor: int, config: msgspec.Struct, manifest: Manifest) -> None:
    """Write the configuration, into its locked file, and the manifest of a run that has recorded nothing."""
    os.ftruncate(descriptor, 0)
    write_all(descriptor, msgspec.json.format(canonical_json(config), indent=2) + b"\n")
    os.fsync(descriptor)
    write_manifest(directory, manifest)


@contextmanager
def lock_directory(directory: Path, wait_s: float = 0.0) -> Iterator[int]:
    """Hold a run directory, made if need be; yields the open ``config.json``, which may be empty.

    The system lets go of the lock when the process ends, however it ends. Raises RunDirectoryError when
    another process still writes the directory after ``wait_s`` seconds.
    """
    directory.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    while (descriptor := _locked(directory / CONFIG)) is None:
        if time.monotonic() >= deadline:
            raise RunDirectoryError(
                f"another process is writing into {directory}: wait until it ends, or stop it"
            )
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


def log_file(directory: Path) -> Path:
    """The log of a run's process, next to the run's directory."""
    return directory.with_name(f"{directory.name}.log")


def set_aside(directory: Path) -> None:
    """Move an unfinished run, with its log, to where no reader takes it for one; never deletes anything.

    Raises RunDirectoryError while another process writes it.
    """
    if is_begun(directory):
        with lock_directory(directory):
            target = move_aside(directory)
            if (log := log_file(directory)).exists():
                log.rename(log_file(target))


def move_aside(directory: Path) -> Path:
    """Move a directory to the interrupted ones next to it, numbered; returns its new place."""
    interrupted = directory.parent / INTERRUPTED
    interrupted.mkdir(exist_ok=True)
    number = 1
    while (target := interrupted / f"{directory.name}-{number}").exists():
        number += 1
    return directory.rename(target)


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


def read_timing(directory: Path) -> Timing:
    """The timing of a run directory, summed over its steps."""
    return sum_timings(list(read_records(directory / TIMINGS, StepTiming)))
