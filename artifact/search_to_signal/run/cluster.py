"""Execution of runs on a Ray cluster, one process per run; imported only with the option --ray.

The results directory and the project have to be the same directories on every node. A run whose node is lost
resumes from its last checkpoint on another node.
"""

import importlib
import signal
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from search_to_signal.base.errors import ConfigError, RunFailedError, S2SError, reason
from search_to_signal.base.progress import Progress
from search_to_signal.records.files import LARGEST, read_regular
from search_to_signal.records.reader import STEPS
from search_to_signal.run.directory import set_aside
from search_to_signal.run.execution import (
    Execution,
    Failures,
    PlannedRun,
    RunProcesses,
    execute_run,
    stoppable,
)

# The number of times that a run may lose its node.
_RETRIES = 8
_POLL_S = 1.0
_CONNECT_S = 5.0
# The run of a lost node may continue for a while, and holds its directory until it ends.
_WAIT_S = 60.0


class _CollectedLines:
    """Collects the lines of a run for the process that started it, which reads its progress from records."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, task: str, done: int, total: int, note: str = "") -> None: ...

    def say(self, line: str) -> None:
        self.lines.append(line)


def _remote_run(run: PlannedRun, execution: Execution) -> list[str]:
    # Ray interrupts a task that is cancelled while it runs; what has begun goes on. The worker ends with it.
    signal.signal(signal.SIGINT, lambda *_: None)
    collected = _CollectedLines()
    with RunProcesses() as processes:
        execute_run(run, execution, collected, processes, _WAIT_S)
    return collected.lines


def node_resources(run: PlannedRun, gpus: bool) -> dict[str, int]:
    """Return the resources of a run on its node: processors, and a GPU where the cluster has some.

    Evaluation workers run on the node of their run, in turns with the model, so the run needs the larger
    number of processors of the two.
    """
    return {"num_cpus": max(run.config.threads, run.config.evaluation.slots), "num_gpus": 1 if gpus else 0}


def execute_on_ray(pending: Sequence[PlannedRun], execution: Execution, progress: Progress) -> None:
    """Execute every run on the cluster at ``execution.ray``, in this order as resources become free.

    Raises ConfigError when there is no such cluster, otherwise as ``execute`` does.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError("Ray is not installed: install the project with its extra 'cluster'") from error
    _require_listener(execution.ray)
    try:
        ray.init(address=execution.ray, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"there is no Ray cluster at {execution.ray}: {error}") from error
    try:
        with Failures(execution, progress) as failures, stoppable(execution.resume):
            gpus = ray.cluster_resources().get("GPU", 0) >= 1
            # Every run has a new worker process, so that no state of another run or attempt remains.
            remote = ray.remote(max_retries=_RETRIES, max_calls=1)(_remote_run)
            waiting = {}
            for run in pending:
                if not execution.resume:
                    set_aside(run.directory)
                run = replace(run, directory=run.directory.resolve())
                # From here on the directory can contain only an earlier attempt of this run.
                attempt = replace(execution, resume=True)
                waiting[remote.options(**node_resources(run, gpus)).remote(run, attempt)] = run
            _watch(ray, waiting, failures, progress)
    finally:
        ray.shutdown()


def _require_listener(address: str | None) -> None:
    """Raise ConfigError where nothing listens at HOST:PORT, since Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # "auto" and the like, which Ray refuses at once
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"there is no Ray cluster at {address} ({reason(error)}): give the address that ray start printed"
        ) from error


def _watch(ray: Any, waiting: dict[Any, PlannedRun], failures: Failures, progress: Progress) -> None:
    shown: dict[str, int] = {}
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=_POLL_S)
            for reference in ready:
                run = waiting.pop(reference)
                try:
                    for line in _result(ray, reference, run):
                        progress.say(line)
                except (RunFailedError, ray.exceptions.RayTaskError) as failure:
                    cancelled = isinstance(failure.__cause__, ray.exceptions.TaskCancelledError)
                    if failures.none_starts and cancelled:
                        continue
                    failures.add(failure, bool(waiting))
                    if failures.none_starts:
                        for other in waiting:
                            ray.cancel(other)
            for run in waiting.values():
                label, groups = run.config.label, _groups(run.directory)
                if shown.get(label) != groups:
                    progress.update(label, groups, run.config.groups)
                shown[label] = groups
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)


def _result(ray: Any, reference: Any, run: PlannedRun) -> list[str]:
    try:
        lines: list[str] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error.cause, S2SError):
            raise
        raise RunFailedError(str(error.cause)) from None
    except ray.exceptions.RayError as error:
        raise RunFailedError(
            f"run {run.config.label} was lost on the cluster ({type(error).__name__}); a run is started "
            f"again {_RETRIES} times when its node fails: look at the nodes, then go on with --resume"
        ) from error
    return lines


def _groups(directory: Path) -> int:
    try:
        return read_regular(directory / STEPS, LARGEST).count(b"\n")
    except FileNotFoundError:
        return 0
