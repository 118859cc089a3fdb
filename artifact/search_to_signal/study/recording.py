"""The studies of a plan, recorded in its order until all are complete or a stop is due.

Every profile has a results directory. Finished runs stay, whichever version of the source made them. A
stopped run resumes from its last checkpoint, and starts again where source or machine have changed.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from search_to_signal.base.errors import ConfigError, StoppedError
from search_to_signal.base.processes import Interrupts, called_every
from search_to_signal.base.progress import progress_display
from search_to_signal.layers.reproduction import chosen_layers, planned_work, require_parts, run_layer
from search_to_signal.records.amendments import Amendment
from search_to_signal.records.checksums import seal
from search_to_signal.records.files import storage_errors
from search_to_signal.records.plan import Plan, Study
from search_to_signal.run.execution import Execution, stoppable
from search_to_signal.run.machine_check import cards_of
from search_to_signal.run.planned_runs import Reproduction
from search_to_signal.run.profile import load_profile

PROFILES = "evidence"
_AGAIN = "give the same command again"
_POLL_S = 1.0


@dataclass(frozen=True)
class Stop:
    """The condition of a planned stop: after ``minutes``, once ``file`` exists, or never."""

    minutes: float | None = None
    file: Path | None = None

    def due(self, since: float) -> bool:
        """Whether to stop now; ``since`` is the start of recording, by ``time.monotonic``."""
        late = self.minutes is not None and time.monotonic() - since >= 60.0 * self.minutes
        return late or self._is_asked()

    @property
    def remedy(self) -> str:
        """How to go on after it; a file that lies there would stop the next command too."""
        again = "the same command goes on"
        return f"the file {self.file} asks for it: remove it, then {again}" if self._is_asked() else again

    def _is_asked(self) -> bool:
        return self.file is not None and self.file.exists()


def record(
    plan: Plan,
    sha256: str,
    out: Path,
    stop: Stop,
    keys: Sequence[str] = (),
    closed: Mapping[str, Amendment] = MappingProxyType({}),
    finished: Path | None = None,
    jobs: int | None = None,
) -> bool:
    """Record the studies of a plan, all or those with these keys; returns False after a planned stop.

    Nothing begins where the stop is due from the start.

    ``closed`` studies, by the amendment that closed each, are left out. ``finished`` holds a directory per
    profile, packed or not, whose finished runs are not recorded again. ``jobs`` replaces the profiles'.
    Raises ConfigError for a study that the plan lacks or that is closed, RunDirectoryError where a directory
    contains something else, RunFailedError as ``execute`` does, and StoppedError on Ctrl-C or SIGTERM.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError("--jobs takes a number of at least 1")
    known = [study.key for study in plan.studies]
    if unknown := sorted(set(keys) - set(known)):
        raise ConfigError(f"the plan has no study {', '.join(unknown)}: it has {', '.join(known)}")
    if ended := [f"{key} ({closed[key].words})" for key in keys if key in closed]:
        raise ConfigError(f"closed: {', '.join(ended)}: give a copy of the plan without its amendments")
    since, stopped = time.monotonic(), threading.Event()
    if stop.due(since):
        return False
    try:
        with (
            storage_errors(out, _AGAIN),
            stoppable(True) as signals,
            _stopping(stop, since, signals, stopped),
        ):
            for study in plan.studies:
                if study.key not in closed and (not keys or study.key in keys):
                    _record_study(study, sha256, out, finished, jobs)
    except StoppedError:
        if not stopped.is_set():
            raise
        return False
    return True


def _record_study(study: Study, sha256: str, out: Path, finished: Path | None, jobs: int | None) -> None:
    for name in study.profiles:
        profile = load_profile(f"{PROFILES}/{name}")
        if jobs is not None:
            profile = msgspec.structs.replace(profile, jobs=jobs)
        layers = chosen_layers(profile, study.layers)
        results = out / name
        require_parts(profile, results, resume=True, keys=[layer.key for layer in layers])
        finished_runs = finished / name if finished is not None else None
        execution = Execution(
            profile.jobs,
            profile.checkpoint_every,
            True,
            plan=sha256,
            finished_runs=finished_runs,
            cards=cards_of(profile),
        )
        with progress_display(planned_work(profile, [layer.key for layer in layers])) as progress:
            progress.say(f"{study.key}: {', '.join(layer.key for layer in layers)} of {name} into {results}")
            for layer in layers:
                run_layer(layer, Reproduction(profile, results, execution, progress))
        seal(results, f"search-to-signal, evidence: {name}")


@contextmanager
def _stopping(stop: Stop, since: float, signals: Interrupts, stopped: threading.Event) -> Iterator[None]:
    """Send this process SIGTERM when a stop is due within the context, and set ``stopped``.

    Not where somebody has asked for the end: a second signal would break off what the first began.
    """

    def watch() -> None:
        if not (stopped.is_set() or signals.asked) and stop.due(since):
            stopped.set()
            os.kill(os.getpid(), signal.SIGTERM)

    with called_every(_POLL_S, watch):
        yield
