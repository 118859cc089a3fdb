"""The fork server: it has imported everything, holds no secrets, and forks one locked worker per candidate.

Started by ``fork_server.py`` as a program of its own, never forked from the trainer.
"""

import _random
import array
import gc
import os
import random
import select
import signal
import socket
import sys
from typing import Any

import numpy as np

from search_to_signal.sandbox import worker
from search_to_signal.sandbox.locks import Barrier, WorkerLocks, apply_locks, leave_server, prepare_locks
from search_to_signal.sandbox.preload import preload
from search_to_signal.sandbox.static_gate import allowed_attributes
from search_to_signal.sandbox.wire_format import HELLO, KILL, SPAWN, STATUS

# Unseeded generators draw from a fixed stream, because a worker has no entropy.
#
# The host runs such programs and types them by their text afterwards, so they must not fail here. Replay
# uses another stream, which is how their decisions show as nondeterministic.

_new: Any = _random.Random.__new__


def replace_entropy(seed: int) -> None:
    """Seed the global generators, and give unseeded ones a stream that depends on ``seed`` alone."""
    source = random.Random(f"entropy {seed}")
    original = random.Random.seed

    def seeded(self: random.Random, a: Any = None, version: int = 2) -> None:
        original(self, source.getrandbits(64) if a is None else a, version)

    def created(cls: type[random.Random], *arguments: Any, **keywords: Any) -> Any:
        return _new(cls, 0)

    random.Random.__new__ = created  # type: ignore[method-assign, assignment]
    random.Random.seed = seeded  # type: ignore[method-assign]
    random.seed = vars(random)["_inst"].seed
    vars(np.random.bit_generator)["randbits"] = source.getrandbits
    reseed(seed)
    np.random.seed(seed)


def reseed(seed: int) -> None:
    """Seed the standard library's global generator again: CPython reseeds it in every forked child."""
    random.seed(seed)


_LOCK_FAILED = 98
_PARENT_CHECK_MS = 500


def main(control_fd: int, wanted: Barrier, seed: int, wide: bool) -> None:
    """Prepare, report which barriers hold, then serve the parent until its end of the socket closes."""
    parent = os.getppid()
    control = socket.socket(fileno=control_fd)
    preload(wide)
    allowed_attributes()
    locks = prepare_locks(wanted)
    replace_entropy(seed)
    gc.collect()
    gc.freeze()
    try:
        control.send(HELLO.pack(int(locks.barriers), locks.landlock_abi, os.getuid()))
    except OSError:
        os._exit(0)  # the parent has ended meanwhile, which is no error of this process
    while True:
        order, descriptors = _next_order(control, parent)
        if len(order) == SPAWN.size and descriptors:
            _run_worker(control, parent, order, descriptors[0], locks, seed)


def _next_order(control: socket.socket, parent: int) -> tuple[bytes, list[int]]:
    _wait(parent, control.fileno())
    size = array.array("i").itemsize
    order, ancillary, _, _ = control.recvmsg(64, socket.CMSG_SPACE(size))
    if not order:
        os._exit(0)
    received = array.array("i")
    for _, _, raw in ancillary:
        received.frombytes(raw[:size])
    return order, list(received)


def _wait(parent: int, *descriptors: int) -> list[int]:
    """Wait until a descriptor is readable; exits when the parent is gone.

    End of file on the control socket says the same, unless a process that the parent forked keeps a
    copy of the other end.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll(_PARENT_CHECK_MS)]
        if ready:
            return ready
        if os.getppid() != parent:
            os._exit(0)


def _run_worker(
    control: socket.socket, parent: int, order: bytes, data_fd: int, locks: WorkerLocks, seed: int
) -> None:
    wall_s, cpu_s, memory = SPAWN.unpack(order)
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            leave_server(server, data_fd)
            worker.silence()
            reseed(seed)
            if apply_locks(locks, wall_s, cpu_s, memory):
                ballast = _shake_heap(seed)
                worker.serve()
                del ballast
        finally:
            os._exit(_LOCK_FAILED)
    os.close(data_fd)
    process = os.pidfd_open(pid)
    while process not in _wait(parent, process, control.fileno()):
        word = control.recv(64)
        os.kill(pid, signal.SIGKILL)
        if word != KILL:
            os._exit(0)
    os.close(process)
    _, status, usage = os.wait4(pid, 0)
    control.send(STATUS.pack(pid, status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss))


def _shake_heap(seed: int) -> list[bytes]:
    """Shift the addresses of small objects of every size, differently for every seed but 0."""
    if seed == 0:
        return []
    draw = random.Random(seed)
    header = sys.getsizeof(b"")
    return [bytes(size) for size in range(0, 512 - header, 16) for _ in range(draw.randrange(1, 40))]
