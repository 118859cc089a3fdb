"""The parent's handle on a fork server: start it, check its locks, have it fork, reap what it forked."""

import array
import contextlib
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from search_to_signal.base.errors import SandboxError
from search_to_signal.sandbox.locks import ALL, Barrier
from search_to_signal.sandbox.wire_format import HELLO, KILL, SPAWN, STATUS

_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = (
    "import sys; paths = sys.argv.pop(1).split(':'); sys.path[0] = paths[0]; "
    "sys.path += [path for path in paths if path not in sys.path]; "
    "from search_to_signal.sandbox.locks import Barrier; "
    "from search_to_signal.sandbox.fork_server_main import main; "
    "fd, barriers, seed, wide = map(int, sys.argv[1:]); "
    "main(fd, Barrier(barriers), seed, bool(wide))"
)
# Which kernels the linear algebra uses decides bits, so a choice made for the parent holds for workers.
_PASSED_ON = ("OPENBLAS_", "NPY_", "MKL_", "LD_LIBRARY_PATH")
_START_S = 120.0
_REAP_S = 30.0


@dataclass(frozen=True)
class Variation:
    """What differs between a scoring fork server and a replaying one, and which modules are preloaded."""

    seed: int
    hash_seed: int
    malloc_perturb: int
    wide: bool = False


SCORING = Variation(seed=0, hash_seed=0, malloc_perturb=0)
REPLAYING = Variation(seed=20260, hash_seed=4093, malloc_perturb=165)


@dataclass(frozen=True)
class WorkerExit:
    """How a worker process ended: wait status and processor seconds."""

    status: int
    cpu_s: float


class ForkServerGoneError(Exception):
    """The fork server died; a new one may be started."""


class ForkServer:
    """A running fork server: ``barriers`` hold in it; ``landlock_abi`` is 0 where there is no Landlock."""

    def __init__(self, variation: Variation, wanted: Barrier = ALL) -> None:
        """Start and wait for the report; raises SandboxError when the fork server cannot prepare itself."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = _start(theirs.fileno(), variation, wanted)
        self._control.settimeout(_START_S)
        report = self._receive_or_empty()
        if len(report) != HELLO.size:
            self.close()
            raise SandboxError(
                "the evaluation fork server did not start; run "
                f"`{sys.executable} -c 'import numpy, scipy.stats'` to see whether the environment is "
                "complete"
            )
        barriers, self.landlock_abi, self.user = HELLO.unpack(report)
        self.barriers = Barrier(barriers)
        self._control.settimeout(_REAP_S)

    def spawn(self, wall_s: float, cpu_s: float, memory: int) -> socket.socket:
        """Have a worker forked and return our end of its data socket; raises ForkServerGoneError."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptor = array.array("i", [theirs.fileno()])
            try:
                self._control.sendmsg(
                    [SPAWN.pack(wall_s, cpu_s, memory)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)]
                )
            except OSError as error:
                ours.close()
                raise ForkServerGoneError from error
        return ours

    def reap(self) -> WorkerExit:
        """Kill the worker that was spawned last, if it still runs, and say how it ended."""
        with contextlib.suppress(OSError):
            self._control.send(KILL)
        report = self._receive_or_empty()
        if len(report) != STATUS.size:
            raise ForkServerGoneError
        _, status, user, system, _ = STATUS.unpack(report)
        return WorkerExit(status, user + system)

    def close(self) -> None:
        """End the fork server and its worker, even where another thread waits for them; never raises."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
            return
        self.process.kill()
        self.process.wait()

    def _receive_or_empty(self) -> bytes:
        try:
            return self._control.recv(64)
        except OSError:
            return b""


def _start(control_fd: int, variation: Variation, wanted: Barrier) -> "subprocess.Popen[bytes]":
    numerics = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    environment = numerics | {
        "PYTHONHASHSEED": str(variation.hash_seed),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",
        # Otherwise the kernel keeps the processor's number in every thread's memory.
        "GLIBC_TUNABLES": "glibc.pthread.rseq=0",
        "LC_ALL": "C.UTF-8",
        "PATH": os.defpath,
    }
    if variation.malloc_perturb:
        environment["MALLOC_PERTURB_"] = str(variation.malloc_perturb)
    # The environment is not passed on, so where packages lie has to be; the standard library comes first.
    paths = ":".join([_ROOT, *(path for path in sys.path if path.startswith("/"))])
    arguments = (control_fd, int(wanted), variation.seed, int(variation.wide))
    return subprocess.Popen(
        [sys.executable, "-s", "-c", _BOOT, paths, *map(str, arguments)],
        env=environment,
        cwd="/",
        pass_fds=[control_fd],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
