"""A cohort: independent runs, a bounded number side by side, each in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from search_to_signal.config import canonical_json
from search_to_signal.errors import RunDirectoryError, S2SError
from search_to_signal.experiments.configuration import CONFIG, Profile, RunConfig
from search_to_signal.generators.files import checked_files, model_directory
from search_to_signal.progress import Progress
from search_to_signal.provenance.checksums import SUMS, write_sums
from search_to_signal.provenance.source import source
from search_to_signal.provenance.verify import verify
from search_to_signal.records.manifest import INTERRUPTED, MANIFEST, read_manifest, run_directories

PROGRESS_PREFIX = "progress "


class RunFailedError(S2SError):
    """A run's process ended without completing its directory."""

    exit_code = 10


@dataclass(frozen=True)
class Place:
    """A run and its directory; ``done`` when the directory already holds exactly this run, verified."""

    config: RunConfig
    directory: Path
    done: bool


def _log(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.log")


def _set_aside(directory: Path) -> None:
    shelf = directory.parent / INTERRUPTED
    shelf.mkdir(exist_ok=True)
    number = 1
    while (target := shelf / f"{directory.name}-{number}").exists():
        number += 1
    directory.rename(target)
    if (log := _log(directory)).exists():
        log.rename(_log(target))


def _place(config: RunConfig, directory: Path, source_sha256: str, model_files: dict[str, str]) -> Place:
    if not directory.exists():
        return Place(config, directory, done=False)
    other = f"{directory} already holds another run: give another --out, or move it away"
    if directory.is_dir() and not any(path.name != CONFIG for path in directory.iterdir()):
        return Place(config, directory, done=False)  # interrupted before its manifest
    if not (directory / MANIFEST).is_file():
        raise RunDirectoryError(other)
    found = read_manifest(directory)
    if found.config_sha256 != config.sha256:
        raise RunDirectoryError(other)
    if found.status != "complete" or not (directory / SUMS).is_file():
        return Place(config, directory, done=False)
    if (found.source.sha256, found.model_files) != (source_sha256, model_files):
        raise RunDirectoryError(f"{directory} holds this run of another version of source or model: {other}")
    if problems := verify(directory).problems:
        raise RunDirectoryError(f"{directory} is complete but damaged ({problems[0]}): {other}")
    return Place(config, directory, done=True)


def places(configs: Sequence[RunConfig], out: Path) -> list[Place]:
    """Where each run goes; raises RunDirectoryError, before anything is touched, where it cannot."""
    if out.exists() and not out.is_dir():
        raise RunDirectoryError(f"{out} is no directory: give another --out, or move it away")
    expected = {config.name for config in configs}
    for found in run_directories(out) if out.is_dir() else []:
        if found == out or found.name not in expected:
            raise RunDirectoryError(f"{found} already holds another run: give another --out, or move it away")
    sha256 = source().sha256
    models = {name: checked_files(model_directory(name)) for name in {config.model for config in configs}}
    return [_place(config, out / config.name, sha256, models[config.model]) for config in configs]


def _environment(threads: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    fixed = dict.fromkeys(names, str(threads))
    return {**os.environ, **fixed, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def _run(place: Place, progress: Progress) -> None:
    if place.directory.exists():
        _set_aside(place.directory)
    place.directory.mkdir(parents=True)
    command = [sys.executable, "-m", "search_to_signal.cli", "run-one", "--out", str(place.directory)]
    # A file, not a pipe: a full pipe that nobody reads would stop the run.
    log_path = _log(place.directory)
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(place.config.threads),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(canonical_json(place.config))
        process.stdin.close()
        for line in process.stdout:
            _pass_on(line.decode(errors="replace").rstrip(), place.config, progress)
    if process.wait() != 0:
        raise RunFailedError(
            f"run {place.config.name} ended with exit code {process.returncode}: see {log_path}"
        )


def _pass_on(line: str, config: RunConfig, progress: Progress) -> None:
    if not line.startswith(PROGRESS_PREFIX):
        progress.say(f"{config.name}: {line}")
        return
    done, total, *note = line.removeprefix(PROGRESS_PREFIX).split(" ", 2)
    progress.update(config.name, int(done), int(total), *note)


def run_cohort(profile: Profile, out: Path, progress: Progress) -> list[Path]:
    """Run what is missing of a cohort; returns its run directories. Complete runs are verified and kept.

    An unfinished directory of the same run is set aside under another name, never deleted. Raises
    RunDirectoryError before anything starts where a directory holds something else.
    """
    todo = places(profile.runs(), out)
    for place in todo:
        if place.done:
            progress.say(f"{place.config.name}: complete and verified, kept")
    with ThreadPoolExecutor(profile.jobs) as workers:
        list(workers.map(lambda place: _run(place, progress), [p for p in todo if not p.done]))
    write_sums(out)
    return [place.directory for place in todo]
