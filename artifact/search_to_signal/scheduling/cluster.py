"""The same runs on a Ray cluster: one process per run, wherever there is room; loaded only when asked for.

Results go where they always go, so their directory has to be the same one on every node, as has the
project. A run whose node is lost goes on from its last checkpoint on another.
"""

import importlib
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from search_to_signal.errors import ConfigError, RunFailedError, S2SError, reason
from search_to_signal.loop.directory import set_aside
from search_to_signal.progress import Progress
from search_to_signal.records.reader import STEPS
from search_to_signal.scheduling.execution import Children, Execution, Place, run_place, stoppable

# How often a run may lose its node.
_RETRIES = 8
_POLL_S = 1.0
_CONNECT_S = 5.0
# A lost node may take a moment to notice; until then its run still holds its directory.
_WAIT_S = 60.0


class _KeptLines:
    """Keeps what a run says for whoever started it; its progress is read from its records."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, task: str, done: int, total: int, note: str = "") -> None: ...

    def say(self, line: str) -> None:
        self.lines.append(line)


def _remote_run(place: Place, how: Execution) -> list[str]:
    said = _KeptLines()
    with Children() as children:
        run_place(place, how, said, children, _WAIT_S)
    return said.lines


def node_resources(place: Place, gpus: bool) -> dict[str, int]:
    """What a run takes of a node: processors, and a GPU where the cluster has some.

    Evaluations run in workers of the run's own process, on its node. They and the model take turns, so
    the larger number of the two is what is busy at once.
    """
    return {
        "num_cpus": max(place.config.threads, place.config.evaluation.slots),
        "num_gpus": 1 if gpus else 0,
    }


def execute_on_ray(todo: Sequence[Place], how: Execution, progress: Progress) -> None:
    """Run every place on the cluster at ``how.ray``, in this order as room allows.

    Raises ConfigError when there is no such cluster, RunFailedError when a run fails, StoppedError on
    Ctrl-C or SIGTERM; the last two end the other runs, which can go on.
    """
    ray = _connected(how.ray)
    try:
        with stoppable(how.resume):
            _watch(ray, _submitted(ray, todo, how), progress)
    finally:
        ray.shutdown()


def _connected(address: str | None) -> Any:
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError("Ray is not installed: install the project with its extra 'cluster'") from error
    _require_listener(address)
    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"there is no Ray cluster at {address}: {error}") from error
    return ray


def _require_listener(address: str | None) -> None:
    """Raise ConfigError where nothing listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # "auto" and the like, which Ray refuses at once
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"there is no Ray cluster at {address} ({reason(error)}): give the address that ray start printed"
        ) from error


def _submitted(ray: Any, todo: Sequence[Place], how: Execution) -> dict[Any, Place]:
    gpus = ray.cluster_resources().get("GPU", 0) >= 1
    # A worker process of its own per run, because a run that lost its node must leave nothing behind.
    remote = ray.remote(max_retries=_RETRIES, max_calls=1)(_remote_run)
    waiting = {}
    for place in todo:
        if not how.resume:
            set_aside(place.directory)
        place = replace(place, directory=place.directory.resolve())
        # From here on whatever is found in the directory is an earlier attempt of this very run.
        attempt = replace(how, resume=True)
        waiting[remote.options(**node_resources(place, gpus)).remote(place, attempt)] = place
    return waiting


def _watch(ray: Any, waiting: dict[Any, Place], progress: Progress) -> None:
    shown: dict[str, int] = {}
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=_POLL_S)
            for reference in ready:
                place = waiting.pop(reference)
                for line in _result(ray, reference, place):
                    progress.say(line)
            for place in waiting.values():
                label, groups = place.config.label, _groups(place.directory)
                if shown.get(label) != groups:
                    progress.update(label, groups, place.config.groups)
                shown[label] = groups
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)


def _result(ray: Any, reference: Any, place: Place) -> list[str]:
    try:
        lines: list[str] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error.cause, S2SError):
            raise
        raise RunFailedError(str(error.cause)) from None
    except ray.exceptions.RayError as error:
        raise RunFailedError(
            f"run {place.config.label} was lost on the cluster ({type(error).__name__}; a run may lose its "
            f"node {_RETRIES} times, this command not its own): look at the nodes, then go on with --resume"
        ) from error
    return lines


def _groups(directory: Path) -> int:
    try:
        return (directory / STEPS).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
