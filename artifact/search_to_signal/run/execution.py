"""Execution of runs: a bounded number in parallel, each in its own process."""

import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from search_to_signal.base.errors import RunFailedError, StoppedError
from search_to_signal.base.processes import Interrupts, command_line, interruptible
from search_to_signal.base.progress import Progress, one_line
from search_to_signal.base.settings import canonical_json
from search_to_signal.records.files import storage_errors
from search_to_signal.run.config import RunConfig
from search_to_signal.run.directory import log_file, set_aside

# Lines with these prefixes go from a run's process to its parent process; all others are for the user.
PROGRESS_PREFIX = "progress "
ERROR_PREFIX = "error: "
# Lines that only resemble progress, from a model's text for example, are for the user.
_PROGRESS = re.compile(rf"{PROGRESS_PREFIX}(?P<done>\d{{1,9}}) (?P<total>\d{{1,9}}) ?(?P<note>.*)")
# From the first signal to the second, which are not to be taken as one; from there until a run is killed.
_AGAIN_S, _ENDING_S = 1.0, 10.0
# How a run ends that was asked to: in order, or before it could take a signal.
_STOPPED = (StoppedError.exit_code, -signal.SIGTERM)


@dataclass(frozen=True)
class PlannedRun:
    """A run and its directory; ``done`` where the directory contains this run, complete and verified.

    ``recorded`` is the directory of a finished run whose final adapter alone is to be made again, ``without``
    the credit of some classes of completions (``run/left_out.py``).
    """

    config: RunConfig
    directory: Path
    done: bool = False
    recorded: Path | None = None
    without: str | None = None

    @property
    def label(self) -> str:
        """What progress calls it."""
        return self.config.label if self.without is None else f"{self.config.label} without {self.without}"


@dataclass(frozen=True)
class Execution:
    """How runs are executed; no field changes a record.

    ``jobs`` runs are executed in parallel, each with a checkpoint after every ``checkpoint_every`` groups.
    ``resume`` continues unfinished runs, which are otherwise set aside and started again. ``ray`` is the
    address of a Ray cluster to use instead of this machine. ``plan`` is the SHA-256 of the runs' plan: runs
    start in the given order, finished ones stay whichever version of the source made them, and unfinished
    ones of another version start again. ``finished_runs`` is the same results directory from other machines,
    packed or not, whose finished runs are not executed again. ``check`` returns the problems of a finished
    run, which is kept where there are none; without it, and under a plan, only checksums are compared.
    ``cards`` are names for CUDA_VISIBLE_DEVICES: where there are several, each run gets one, with as many
    runs on each.
    """

    jobs: int = 1
    checkpoint_every: int = 1
    resume: bool = False
    ray: str | None = None
    plan: str | None = None
    finished_runs: Path | None = None
    check: Callable[[Path], Sequence[str]] | None = None
    cards: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """What goes on with unfinished runs, for whoever gave this command."""
        return "give the same command again" if self.resume else "go on with --resume"


class Failures:
    """What runs failed with; leaving the context, when the others have ended, raises the first.

    After a failure the runs of a plan go on, all of them; otherwise no run starts, and those that are running
    go on to their end: on a card each has cost minutes to begin. A stop takes no failure's place: who asked
    for it would not look for one.
    """

    def __init__(self, execution: Execution, progress: Progress) -> None:
        self._found: list[BaseException] = []
        self._planned, self._progress = execution.plan is not None, progress

    @property
    def none_starts(self) -> bool:
        """Whether no further run may start."""
        return bool(self._found) and not self._planned

    def add(self, failure: BaseException, others: bool) -> None:
        """Keep a failure; it is said, with what ``others`` do, unless it is the one that is raised now."""
        self._found.append(failure)
        rest = "the others go on" if self._planned else "runs in progress go on, no new run starts"
        if others or len(self._found) > 1:
            self._progress.say(one_line(f"{failure}; {rest}" if others else str(failure)))

    def __enter__(self) -> "Failures":
        return self

    def __exit__(self, _: object, ended_by: BaseException | None, __: object) -> None:
        if not self._found or not isinstance(ended_by, StoppedError | None):
            return
        if ended_by is not None:
            self._progress.say("the other runs were stopped")
        raise self._found[0] from None


def execute(pending: Sequence[PlannedRun], execution: Execution, progress: Progress) -> None:
    """Execute every run, in this order as jobs become free.

    Raises RunFailedError as ``Failures`` does, otherwise StoppedError on Ctrl-C or SIGTERM, when every run
    has ended the group that it is in, or at once on a second signal; ended runs can be resumed.
    """
    waiting = deque(pending)
    running: set[Future[None]] = set()
    with (
        Failures(execution, progress) as failures,
        stoppable(execution.resume),
        ThreadPoolExecutor(execution.jobs) as workers,
        RunProcesses(execution.cards, execution.jobs) as processes,
    ):

        def begin(number: int) -> set[Future[None]]:
            return {
                workers.submit(execute_run, waiting.popleft(), execution, progress, processes)
                for _ in range(min(number, len(waiting)))
            }

        try:
            # A queued run would start before the failure of another one is seen.
            running = begin(execution.jobs)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for failure in filter(None, (future.exception() for future in done)):
                    failures.add(failure, bool(running or (waiting and execution.plan is not None)))
                if not failures.none_starts:
                    running |= begin(len(done))
        except KeyboardInterrupt:
            progress.say("stopping: each run first finishes its group; press Ctrl-C again to stop at once")
            processes.stop()
            for failure in filter(None, (future.exception() for future in running)):
                if not isinstance(failure, StoppedError):
                    failures.add(failure, others=False)
            raise


@contextmanager
def stoppable(resume: bool) -> Iterator[Interrupts]:
    """Turn Ctrl-C and SIGTERM into StoppedError; in other threads than the main one only Ctrl-C."""
    with interruptible() as signals:
        try:
            yield signals
        except KeyboardInterrupt:
            again = "the same command" if resume else "the same command with --resume"
            raise StoppedError(f"stopped; give {again} to go on") from None


class RunProcesses:
    """The running processes of runs; leaving the context ends them, and no further process starts.

    ``jobs`` of them share several ``cards`` evenly. ``stopped`` from when all were asked to end.
    """

    def __init__(self, cards: Sequence[str] = (), jobs: int = 1) -> None:
        self._cards: SimpleQueue[str] = SimpleQueue()
        self._shared = len(cards) > 1
        if self._shared:
            for number in range(-(-jobs // len(cards)) * len(cards)):
                self._cards.put(cards[number % len(cards)])
        self._running: set[subprocess.Popen[bytes]] = set()
        self.stopped = False
        self._lock = threading.Lock()

    def __enter__(self) -> "RunProcesses":
        return self

    @contextmanager
    def start(self, command: list[str], log: Path, threads: int) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a run's process, which ends with the context; raises StoppedError after all were ended."""
        with self._card() as card:
            # A file, since a full pipe without a reader would block the run.
            with log.open("ab") as errors, self._lock:
                if self.stopped:
                    raise StoppedError("stopped before this run began")
                names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
                fixed = {name: str(threads) for name in names}
                fixed |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={**os.environ, **fixed, **card},
                    start_new_session=True,  # Ctrl-C reaches this process alone, which ends its runs in order
                )
                self._running.add(process)
            try:
                yield process
            finally:
                _end(process)
                self._running.discard(process)

    @contextmanager
    def _card(self) -> Iterator[dict[str, str]]:
        """The environment that makes a card the only visible one; empty where cards are not shared.

        Numbers are nvidia-smi's, whose order CUDA takes when it is told to.
        """
        if not self._shared:
            yield {}
            return
        card = self._cards.get()
        try:
            yield {"CUDA_VISIBLE_DEVICES": card, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        finally:
            self._cards.put(card)

    def stop(self) -> None:
        """Have every run end in order, and wait until it has; no further process starts."""
        for process in self._ask():
            process.wait()

    def __exit__(self, *_: object) -> None:
        for process in self._ask():
            _end(process)

    def _ask(self) -> list["subprocess.Popen[bytes]"]:
        with self._lock:
            self.stopped = True
        running = list(self._running)
        for process in running:
            _terminate(process)
        return running


def _terminate(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process at once: a run may take the first signal as a stop after its group."""
    for wait_s in (_AGAIN_S, _ENDING_S):
        _terminate(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            return
    process.kill()
    process.wait()


def execute_run(
    run: PlannedRun, execution: Execution, progress: Progress, processes: RunProcesses, wait_s: float = 0
) -> None:
    """Execute one run in a process and report its output.

    Raises RunFailedError where it fails, StoppedError where it ended because all were asked to.
    ``wait_s`` is the time that the run waits for another process that holds its directory.
    """
    directory, log = run.directory, log_file(run.directory)
    with storage_errors(directory.parent, execution.remedy):
        if not execution.resume:
            set_aside(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
    command = command_line("run-one", "--out", str(directory))
    command += ["--checkpoint-every", str(execution.checkpoint_every), "--wait", str(wait_s)]
    command += ["--parent", str(os.getpid()), *(["--resume"] if execution.resume else [])]
    command += ["--plan", execution.plan] if execution.plan is not None else []
    command += ["--retrain", str(run.recorded)] if run.recorded is not None else []
    command += ["--without", run.without] if run.without is not None else []
    last_line = ""
    progress.update(run.label, 0, run.config.groups, "starting")
    with (
        storage_errors(directory.parent, execution.remedy),
        processes.start(command, log, run.config.threads) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(canonical_json(run.config))
            process.stdin.close()
        for line in process.stdout:
            last_line = one_line(line.decode(errors="replace"))
            if not last_line.startswith(ERROR_PREFIX):  # an error is reported once, with the exit code
                if match := _PROGRESS.fullmatch(last_line):
                    progress.update(run.label, int(match["done"]), int(match["total"]), match["note"])
                else:
                    progress.say(f"{run.label}: {last_line}")
        code = process.wait()
    if processes.stopped and code in _STOPPED:
        raise StoppedError(f"run {run.label} stopped")
    if code != 0:
        error = f" ({last_line})" if last_line.startswith(ERROR_PREFIX) else ""
        raise RunFailedError(f"run {run.label} ended with exit code {code}{error}: see {log}")
