"""The fork server: it has imported everything, holds no secrets, and forks one locked worker per candidate.

Started by ``fork_server.py`` as a program of its own, never forked from the trainer.
"""

import _random
import array
import gc
import importlib
import importlib.util
import os
import random
import re
import select
import signal
import socket
import sys
import warnings
from typing import Any

import numpy as np

from search_to_signal.sandbox import worker
from search_to_signal.sandbox.locks import Barrier, WorkerLocks, apply_locks, leave_server, prepare_locks
from search_to_signal.sandbox.static_gate import allowed_attributes
from search_to_signal.sandbox.wire_format import HELLO, KILL, SPAWN, STATUS

# The modules that heuristics find: a worker cannot open files, so what is not imported here is absent.
#
# There are two sets, because a fork costs time for everything that was imported: the lean one has what
# nearly all heuristics use, the wide one adds scipy and rarer parts of the standard library.

# numpy 2 renamed its inner package; numpy 1.26 has the new name as well, with less in it.
_INNER = "numpy._core" if importlib.util.find_spec("numpy._core._methods") else "numpy.core"
LEAN = (
    "abc", "array", "bisect", "builtins", "cmath", "collections", "collections.abc", "contextlib", "copy",
    "ctypes", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "gc", "heapq",
    "inspect", "io", "itertools", "json", "logging", "math", "numbers", "operator", "os", "pickle", "queue",
    "random", "re", "resource", "secrets", "select", "signal", "socket", "statistics", "string", "struct",
    "sys", "textwrap", "threading", "time", "traceback", "types", "typing", "unicodedata", "warnings",
    "weakref", "encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.unicode_escape",
    "numpy", f"{_INNER}._dtype", f"{_INNER}._methods", "numpy.fft", "numpy.lib.stride_tricks",
    "numpy.linalg", "numpy.ma", "numpy.polynomial", "numpy.random", "numpy.typing",
)  # fmt: skip
WIDE = (
    "argparse", "ast", "asyncio", "atexit", "base64", "binascii", "calendar", "colorsys",
    "concurrent.futures", "contextvars", "csv", "difflib", "dis", "errno", "fcntl", "getpass", "glob",
    "graphlib", "hashlib", "hmac", "html", "http.client", "importlib", "importlib.util", "keyword",
    "linecache", "locale", "marshal", "mmap", "multiprocessing", "multiprocessing.shared_memory", "pathlib",
    "platform", "pprint", "sched", "selectors", "shelve", "shlex", "shutil", "sqlite3", "subprocess",
    "tempfile", "timeit", "urllib.request", "uuid", "zlib",
    "scipy", "scipy.cluster.hierarchy", "scipy.cluster.vq", "scipy.interpolate", "scipy.linalg",
    "scipy.ndimage", "scipy.optimize", "scipy.sparse", "scipy.sparse.csgraph", "scipy.sparse.linalg",
    "scipy.spatial", "scipy.spatial.distance", "scipy.special", "scipy.stats",
)  # fmt: skip
_WORDS = re.compile(r"\w+")
_WIDE_ROOTS = frozenset(name.partition(".")[0] for name in WIDE)


def needs_wide(code: str) -> bool:
    """Whether a module of the wide set is named anywhere in a program, by its text alone."""
    return not _WIDE_ROOTS.isdisjoint(_WORDS.findall(code))


def preload(wide: bool) -> None:
    """Import one of the sets and touch the linear algebra once, so that workers start warm."""
    warnings.simplefilter("ignore")
    for module in (*LEAN, *WIDE) if wide else LEAN:
        importlib.import_module(module)
    import numpy as np

    np.linalg.inv(np.eye(3)) @ np.ones(3)


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
