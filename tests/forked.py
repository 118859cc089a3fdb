"""Commands in processes forked from one that has loaded the libraries: as ever, and five seconds sooner.

``Commands`` starts a command for a test. ``Forked`` takes the place of ``subprocess.Popen`` where a run is
started as the commands start it, in an environment like that of the first such run. Everything else starts as
it always does.
"""

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from search_to_signal.base.processes import command_line
from search_to_signal.run import execution

SERVE = f"""
import sys
from search_to_signal.base.processes import fix_kernels
from search_to_signal.base.processes import wait_without_spinning
wait_without_spinning()
fix_kernels()
import search_to_signal.run.loop, search_to_signal.run.learning, search_to_signal.learner.grpo
import search_to_signal.problems.ant_colony.colonies, search_to_signal.models.fetching
sys.path.append({str(Path(__file__).parents[1])!r})
from tests.forked import serve
serve(int(sys.argv[1]))
"""
# For a command whose figures are not drawn; its end ends it.
NOT_DRAWN = "import sys; from tests.drawing import not_drawn; sys.drawn = not_drawn(); sys.drawn.__enter__()"
# For a command whose runs are forked from it.
RUNS_FORKED = "from tests.forked import fork_own_runs; fork_own_runs()"
# What a server loads its libraries with, as a run of one thread does.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
# Of the test, and of how threads wait, which the server has decided already.
ANYTIME = ("PYTEST_CURRENT_TEST", "OMP_WAIT_POLICY", "OPENBLAS_THREAD_TIMEOUT")


class Forked:
    """The part of ``subprocess.Popen`` that an execution uses."""

    def __init__(
        self, server: socket.socket, arguments: Sequence[str], log: int, env: Mapping[str, str], **more: Any
    ) -> None:
        """Have the server fork a process that runs s2s with these arguments; ``more`` as of ``Commands``."""
        (given, write_in), (read_out, told), (read_end, ended) = os.pipe(), os.pipe(), os.pipe()
        request = {"arguments": arguments, "env": dict(env), "cwd": os.getcwd(), "limits": {}, "boot": ""}
        socket.send_fds(server, [json.dumps(request | more).encode()], [given, told, log, ended])
        for descriptor in (given, told, ended):
            os.close(descriptor)
        self.stdin: IO[bytes] = os.fdopen(write_in, "wb")
        self.stdout: IO[bytes] = os.fdopen(read_out, "rb")
        self._end: IO[bytes] = os.fdopen(read_end, "rb", buffering=0)
        self.pid = int(self._end.readline())
        self.returncode: int | None = None
        self._waiting = threading.Lock()

    def poll(self) -> int | None:
        """The exit code of a process that has ended, negative for a signal."""
        return self._waited(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; raises TimeoutExpired."""
        code = self._waited(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("run-one", timeout or 0.0)
        return code

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _waited(self, timeout: float | None) -> int | None:
        # A run's own thread and the one that ends all runs may wait at once.
        readable = self.returncode is None and select.select([self._end.fileno()], [], [], timeout)[0]
        with self._waiting:
            if readable and self.returncode is None:
                self.returncode = int(self._end.readline())
        return self.returncode

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Started(Forked):
    """A command whose output a test reads when it has ended."""

    def __init__(
        self, server: socket.socket, arguments: Sequence[str], env: Mapping[str, str], **more: Any
    ) -> None:
        """Start it, with nothing to read."""
        read, errors = os.pipe()
        super().__init__(server, arguments, errors, env, **more)
        os.close(errors)
        self.stdin.close()
        self.stderr: IO[bytes] = os.fdopen(read, "rb")

    def communicate(self) -> tuple[str, str]:
        """What it printed, and its errors, once it has ended."""
        with ThreadPoolExecutor(2) as readers:
            out, err = readers.map(lambda stream: stream.read().decode(), (self.stdout, self.stderr))
        self.wait()
        return out, err


class Commands:
    """Starts commands in processes of their own, forked from one with these variables beside the test's."""

    def __init__(self, **env: str) -> None:
        """Start nothing yet."""
        self._env = env
        self._server: socket.socket | None = None

    def start(
        self, *arguments: str | Path, limits: Mapping[int, int] | None = None, boot: str = "", **env: str
    ) -> Started:
        """Start one where the test is; ``limits`` by resource, ``boot`` is code that runs before it."""
        whole = {**os.environ, **self._env, **env}
        more = {"limits": limits or {}, "boot": boot}
        given = [str(argument) for argument in arguments]
        try:
            return Started(self.server(), given, whole, **more)
        except BrokenPipeError:
            # The server has ended since the last command, as any process of a long session may.
            self._server = None
            return Started(self.server(), given, whole, **more)

    def server(self) -> socket.socket:
        """The process that they are forked from, started where there is none yet."""
        if self._server is None:
            self._server = started({**os.environ, **ONE_THREAD, **self._env})
        return self._server

    def run(self, *arguments: str | Path, **more: Any) -> "subprocess.CompletedProcess[str]":
        """Run one to its end; ``more`` as of ``start``."""
        process = self.start(*arguments, **more)
        out, err = process.communicate()
        return subprocess.CompletedProcess(arguments, process.wait(), out, err)

    def run_file(self, file: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a file of Python, as ``python FILE`` does."""
        boot = (
            f"import os, runpy, sys; sys.argv = {[str(file), *arguments]!r};"
            "runpy.run_path(sys.argv[0], run_name='__main__'); sys.stdout.flush(); os._exit(0)"
        )
        return self.run(boot=boot)

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.close()


class Forking:
    """In place of the module ``subprocess`` where runs are started, which are forked from a ``server``."""

    PIPE, TimeoutExpired = subprocess.PIPE, subprocess.TimeoutExpired

    def __init__(self, server: Callable[[], socket.socket]) -> None:
        """Ask for no server yet."""
        self._find, self._env = server, dict[str, str]()

    def Popen(self, command: list[str], **given: Any) -> "Forked | subprocess.Popen[bytes]":
        """Fork what runs in one thread and the known environment, start anything else."""
        env = {name: value for name, value in given["env"].items() if name not in ANYTIME}
        head = command_line()
        known = ONE_THREAD.items() <= env.items() and env == (self._env or env)
        if command[: len(head) + 1] != [*head, "run-one"] or not known:
            return subprocess.Popen(command, **given)
        self._env = env
        return Forked(self._find(), command[len(head) :], given["stderr"].fileno(), given["env"])


@contextmanager
def forked_runs(by: Forking) -> Iterator[None]:
    """Within it, runs of this process are forked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "subprocess", by)
        yield


def fork_own_runs() -> None:
    """Have this command fork its runs from itself as it is now; their server ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        serve(theirs.detach())
        os._exit(0)
    theirs.close()
    execution.subprocess = Forking(lambda: ours)  # type: ignore[assignment]


def started(env: Mapping[str, str]) -> socket.socket:
    """A process that has loaded what runs need; it ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-c", SERVE, str(theirs.fileno())]
        subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()], start_new_session=True)
    return ours


def serve(descriptor: int) -> None:
    """Fork a process per request, and beside it one that waits for its end and says how it was."""
    from tests.disk import unsynced

    with socket.socket(fileno=descriptor) as requests, unsynced():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel waits for those that only wait
        while True:
            whole, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, 4)
            if not whole:
                return
            if os.fork() == 0:
                requests.close()
                _wait_for_one(SimpleNamespace(**json.loads(whole)), *descriptors)
            for one in descriptors:
                os.close(one)


def _wait_for_one(request: SimpleNamespace, given: int, told: int, log: int, ended: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waiting = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(ended)
        _run_one(request, waiting, (given, told, log))
    for descriptor in (given, told, log):
        os.close(descriptor)
    os.write(ended, f"{pid}\n".encode())
    os.write(ended, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    os._exit(0)


def _run_one(request: SimpleNamespace, parent: int, streams: tuple[int, int, int]) -> None:
    os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # Streams of the process that this one was forked from may not close these as they go.
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww")
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell put the tests behind
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.env)
    arguments = request.arguments
    if "--parent" in arguments:
        arguments[arguments.index("--parent") + 1] = str(parent)
    for kind, most in request.limits.items():
        resource.setrlimit(int(kind), (most, most))
    exec(request.boot, {})
    from search_to_signal.cli import main

    code = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking apart what was loaded before the fork takes a second
