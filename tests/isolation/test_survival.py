"""Whoever dies, results stay right and no process stays behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from search_to_signal.base.errors import SandboxError
from search_to_signal.problems.tsp import Tsp
from search_to_signal.sandbox import fork_server
from search_to_signal.sandbox.locks import ALL
from search_to_signal.sandbox.outcomes import Evaluation, Isolation
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings

HEAD = "def f(current, destination, unvisited, matrix):\n    "
# A second of processor time: whoever looks for its worker finds it, also on a busy machine.
SLOW = HEAD + "sum(range(200000)); return min(unvisited)"
LOOP = HEAD + "while True: pass"
PARENT = f"""
import os, sys
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.problems.tsp import Tsp
with EvaluationPool(Tsp(), "embedded", EvaluationSettings(slots=2)) as pool:
    if sys.argv[1] == "forked" and os.fork() == 0:
        import time
        time.sleep(20)
        os._exit(0)
    print("ready", flush=True)
    pool.evaluate([{LOOP!r}, {LOOP + chr(10) + "N = 1"!r}])
"""


def descendants(pid: int) -> set[int]:
    """Process ids of everything below a process."""
    below: set[int] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            below |= {child} | descendants(child)
    return below


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether a condition becomes true in time."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def is_alive(pid: int) -> bool:
    """Whether a process runs and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def killing(pool: EvaluationPool, code: str, choose: Callable[[], set[int]]) -> Evaluation:
    """Evaluate while the chosen processes, once they exist, are killed one time."""

    def kill() -> None:
        until(lambda: bool(choose()))
        for pid in choose():
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    (result,) = pool.evaluate([code])
    thread.join()
    return result


def servers() -> set[int]:
    """The fork servers of this process that have a worker at the moment."""
    return {pid for pid in descendants(os.getpid()) if descendants(pid)}


def workers() -> set[int]:
    """The workers of this process."""
    return {worker for pid in servers() for worker in descendants(pid)}


@pytest.fixture
def pool() -> EvaluationPool:
    """A pool without replays, not yet started."""
    return EvaluationPool(Tsp(), "embedded", EvaluationSettings(timeout_s=30.0, replay="off"))


def test_a_server_killed_at_work_costs_time_only(pool: EvaluationPool) -> None:
    """The candidate runs again in a new fork server and has the same score."""
    with pool:
        result = killing(pool, SLOW, servers)
        (honest,) = pool.evaluate([HEAD + "return min(unvisited)"])
    assert (result.isolation, result.score) == (Isolation.OK, honest.score)


def test_a_server_that_reports_to_nobody_ends_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    """Where its parent has ended before it was ready, a run's log gets no traceback."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = fork_server._start(theirs.fileno(), fork_server.SCORING, ALL)
    ours.close()
    assert server.wait(60) == 0
    assert capfd.readouterr().err == ""


def test_a_killed_worker_is_typed_and_not_remembered(pool: EvaluationPool) -> None:
    """A kill from outside is a typed ending that says nothing about the program."""
    with pool:
        killed = killing(pool, SLOW, workers)
        (again,) = pool.evaluate([SLOW])
    assert killed.isolation is Isolation.KILLED
    assert (again.isolation, again.repeat) == (Isolation.OK, False)


def test_leaving_the_pool_does_not_wait_for_programs(pool: EvaluationPool) -> None:
    """Leaving while a program runs ends the program at once and leaves nothing behind."""
    before = descendants(os.getpid())
    thread = threading.Thread(target=lambda: _swallow(pool, LOOP))
    with pool:
        thread.start()
        assert until(lambda: bool(workers()))
        start = time.monotonic()
    thread.join()
    # The program itself would run for half a minute of processor time.
    assert time.monotonic() - start < 20.0
    assert until(lambda: descendants(os.getpid()) == before)


def _swallow(pool: EvaluationPool, code: str) -> None:
    with contextlib.suppress(SandboxError, CancelledError):
        pool.evaluate([code])


@pytest.mark.parametrize("parent", ["plain", "forked"])
def test_nothing_outlives_a_killed_parent(parent: str) -> None:
    """After kill -9 fork servers and workers end, even when a fork of the parent keeps its sockets."""
    process = subprocess.Popen([sys.executable, "-c", PARENT, parent], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert until(lambda: sum(len(descendants(pid)) for pid in descendants(process.pid)) == 2)
    below = {pid for pid in descendants(process.pid) if "-c" in Path(f"/proc/{pid}/cmdline").read_text()}
    forked = {pid for pid in below if PARENT in Path(f"/proc/{pid}/cmdline").read_text()}
    process.kill()
    process.wait()
    process.stdout.close()
    try:
        assert until(lambda: not any(is_alive(pid) for pid in below - forked), seconds=3.0)
        assert len(below - forked) == 4
    finally:
        for pid in forked:
            os.kill(pid, signal.SIGKILL)
