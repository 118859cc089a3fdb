"""A run directory from its first byte to its checksums, taken up wherever an earlier process left it."""

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from search_to_signal.config import canonical_json
from search_to_signal.errors import RunDirectoryError
from search_to_signal.experiments.configuration import CONFIG, RunConfig
from search_to_signal.experiments.output import CHECKPOINTS
from search_to_signal.experiments.resuming import ResumePoint, refuse_changes, resume_point
from search_to_signal.generators.opening import model_files
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import score_unit
from search_to_signal.provenance.checksums import write_sums
from search_to_signal.provenance.environment import environment
from search_to_signal.provenance.source import source
from search_to_signal.records.files import TEMPORARY, write_all
from search_to_signal.records.manifest import MANIFEST, Manifest, read_manifest, write_manifest


class OpenedRun(NamedTuple):
    """A locked run directory; ``point`` is where an earlier process stopped, None in a fresh one."""

    manifest: Manifest
    point: ResumePoint | None


def begun(directory: Path) -> bool:
    """Whether a run in this directory came as far as its manifest; what is before that is no loss."""
    return (directory / MANIFEST).is_file()


def refuse_occupied(directory: Path, resume: bool) -> None:
    """Raise RunDirectoryError, touching nothing, unless this is a place for a run or a run to go on with."""
    if not directory.exists() or (resume and begun(directory)):
        return
    if any(path.name != CONFIG and not path.name.endswith(TEMPORARY) for path in directory.iterdir()):
        what = "holds no run to go on with" if resume else "is not empty"
        raise RunDirectoryError(f"{directory} {what}: give another --out, or move it away")


def take(directory: Path, descriptor: int, config: RunConfig) -> OpenedRun:
    """Begin a run, or take up the one that is there; ``descriptor`` is its locked configuration file.

    Raises RunDirectoryError, touching nothing, when what is there is another run or is damaged.
    """
    unit = score_unit(get_problem(config.problem))
    files = model_files(config.generation, config.model)
    now = first_manifest(config, config.sha256, files, score_unit=unit, host=config.host)
    if not begun(directory):
        begin(directory, descriptor, config, now)
        return OpenedRun(now, None)
    found = read_manifest(directory)
    refuse_changes(directory, found, now)
    if found.status == "complete":
        return OpenedRun(found, None)
    return OpenedRun(found, resume_point(directory))


def interrupted(directory: Path, manifest: Manifest) -> Manifest:
    """The manifest of a run that goes on; written before its first new group."""
    manifest = msgspec.structs.replace(manifest, interruptions=manifest.interruptions + 1)
    write_manifest(directory, manifest)
    return manifest


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


def first_manifest(config: msgspec.Struct, sha256: str, files: dict[str, str], **facts: Any) -> Manifest:
    """The manifest of a run that begins; ``files`` are the model's, ``facts`` further fields."""
    manifest = Manifest(
        status="running",
        config=msgspec.to_builtins(config),
        config_sha256=sha256,
        source=source(),
        environment=environment(),
        model_files=files,
        isolation={},
        **facts,
    )
    # As it will be read back: lists where the settings have tuples.
    return msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest)
