"""Executes runs: a bounded number side by side, each in a process of its own."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from search_to_signal.config import canonical_json
from search_to_signal.errors import RunFailedError, StoppedError
from search_to_signal.loop.directory import log_file, set_aside
from search_to_signal.profiles.run_config import RunConfig
from search_to_signal.progress import Progress, one_line
from search_to_signal.records.files import storage_errors
from search_to_signal.runtime import command_line

# How a run's process speaks to the one that started it; every other line is for people.
PROGRESS_PREFIX = "progress "
ERROR_PREFIX = "error: "
# Anything else that looks like it, a model's text perhaps, is a line for people.
_PROGRESS = re.compile(rf"{PROGRESS_PREFIX}(?P<done>\d{{1,9}}) (?P<total>\d{{1,9}}) ?(?P<note>.*)")
_ENDING_S = 10.0


@dataclass(frozen=True)
class Place:
    """A run and its directory; ``done`` when the directory already holds exactly this run, verified.

    With ``recorded``, a finished run's directory, its final adapter alone is made again.
    """

    config: RunConfig
    directory: Path
    done: bool = False
    recorded: Path | None = None


@dataclass(frozen=True)
class Execution:
    """How runs are executed; nothing here changes a record.

    ``jobs`` runs go side by side, each with a checkpoint after every ``checkpoint_every`` groups. With
    ``resume`` unfinished runs go on, else they are set aside and begin again. ``ray`` is the address of a
    Ray cluster to run on instead of this machine. ``plan`` is the SHA-256 of the plan of the runs: they begin
    in the order given, finished ones stay whichever version of the source made them, and what another version
    began begins again. ``elsewhere`` is the same results directory as it came from other machines, packed or
    not: what is finished there is not run again. ``check`` gives the problems of a finished run, which is
    kept where there are none; without it, and under a plan, checksums alone are held.
    """

    jobs: int = 1
    checkpoint_every: int = 1
    resume: bool = False
    ray: str | None = None
    plan: str | None = None
    elsewhere: Path | None = None
    check: Callable[[Path], Sequence[str]] | None = None


def execute(todo: Sequence[Place], how: Execution, progress: Progress) -> None:
    """Run every place, in this order as room allows.

    Raises RunFailedError when a run fails, which ends the others, and StoppedError on Ctrl-C or SIGTERM;
    whatever was ended can go on.
    """
    waiting = iter(todo)
    with stoppable(how.resume), ThreadPoolExecutor(how.jobs) as workers, Children() as children:

        def begin(number: int) -> set[Future[None]]:
            return {
                workers.submit(run_place, place, how, progress, children) for place in islice(waiting, number)
            }

        # Never more at the pool than it has room for: it would begin the next one before a failure is seen.
        running = begin(how.jobs)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            running |= begin(len(done))


@contextmanager
def stoppable(resume: bool) -> Iterator[None]:
    """Within it Ctrl-C and SIGTERM are a StoppedError; off the main thread there is no handler to set."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if main else None
    try:
        yield
    except KeyboardInterrupt:
        again = "the same command" if resume else "the same command with --resume"
        raise StoppedError(f"stopped; {again} goes on with what was begun") from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


class Children:
    """The processes of runs that are under way: they end with the context, and then no more of them start."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False
        self._lock = threading.Lock()

    def __enter__(self) -> "Children":
        return self

    @contextmanager
    def start(self, command: list[str], log: Path, threads: int) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a run; at the end it has ended. Raises StoppedError when everything was ended."""
        # A file, not a pipe: a full pipe that nobody reads would stop the run.
        with log.open("ab") as errors, self._lock:
            if self._ended:
                raise StoppedError("stopped before this run began")
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(threads),
                start_new_session=True,  # Ctrl-C is for us: a run is ended in order
            )
            self._running.add(process)
        try:
            yield process
        finally:
            _end(process)
            self._running.discard(process)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
        for process in list(self._running):
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_place(
    place: Place, how: Execution, progress: Progress, children: Children, wait_s: float = 0
) -> None:
    """Run one place in a process and pass on what it says; raises RunFailedError."""
    directory, log = place.directory, log_file(place.directory)
    with storage_errors(directory.parent):
        if not how.resume:
            set_aside(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
    command = command_line("run-one", "--out", str(directory))
    command += ["--checkpoint-every", str(how.checkpoint_every), "--wait", str(wait_s)]
    command += ["--parent", str(os.getpid()), *(["--resume"] if how.resume else [])]
    command += ["--plan", how.plan] if how.plan is not None else []
    command += ["--retrain", str(place.recorded)] if place.recorded is not None else []
    said = ""
    progress.update(place.config.label, 0, place.config.groups, "starting")
    with storage_errors(directory.parent), children.start(command, log, place.config.threads) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(canonical_json(place.config))
            process.stdin.close()
        for line in process.stdout:
            said = one_line(line.decode(errors="replace"))
            if not said.startswith(ERROR_PREFIX):  # which is told once, with the run's exit code
                _report_line(said, place.config, progress)
        code = process.wait()
    if code != 0:
        why = f" ({said})" if said.startswith(ERROR_PREFIX) else ""
        raise RunFailedError(f"run {place.config.label} ended with exit code {code}{why}: see {log}")


def _environment(threads: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    fixed = dict.fromkeys(names, str(threads))
    return {**os.environ, **fixed, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def _report_line(line: str, config: RunConfig, progress: Progress) -> None:
    if found := _PROGRESS.fullmatch(line):
        progress.update(config.label, int(found["done"]), int(found["total"]), found["note"])
    else:
        progress.say(f"{config.label}: {line}")
