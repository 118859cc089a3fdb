"""Checkpoints of a run, to go on from: how many groups are done, marks of the record files, the learner."""

import hashlib
import os
from pathlib import Path

import msgspec

from search_to_signal.config import canonical_json
from search_to_signal.errors import UNREADABLE, RunDirectoryError
from search_to_signal.learner.base import Learner
from search_to_signal.records.files import LARGEST, read_regular, write_atomically
from search_to_signal.records.writer import Mark, RunFiles

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
            f"no checkpoint in {folder} is whole: restore it from a copy, or move the run away to begin again"
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
