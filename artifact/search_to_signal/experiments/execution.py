"""Executes runs: a bounded number side by side, each in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from search_to_signal.config import canonical_json
from search_to_signal.errors import S2SError
from search_to_signal.experiments.configuration import RunConfig
from search_to_signal.progress import Progress
from search_to_signal.records.manifest import INTERRUPTED

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
            f"run {place.config.label} ended with exit code {process.returncode}: see {log_path}"
        )


def _pass_on(line: str, config: RunConfig, progress: Progress) -> None:
    if not line.startswith(PROGRESS_PREFIX):
        progress.say(f"{config.label}: {line}")
        return
    done, total, *note = line.removeprefix(PROGRESS_PREFIX).split(" ", 2)
    progress.update(config.label, int(done), int(total), *note)


def execute(places: Sequence[Place], jobs: int, progress: Progress) -> None:
    """Run every place that is not done, ``jobs`` at a time; raises RunFailedError.

    An unfinished directory of the same run is set aside under another name, never deleted.
    """
    for place in places:
        if place.done:
            progress.say(f"{place.config.label}: complete and verified, kept")
    with ThreadPoolExecutor(jobs) as workers:
        list(workers.map(lambda place: _run(place, progress), [p for p in places if not p.done]))
