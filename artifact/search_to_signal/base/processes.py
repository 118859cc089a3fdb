"""Processes and memory, and how Ctrl-C and SIGTERM end them."""

import ctypes
import gc
import math
import os
import platform
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

Item = TypeVar("Item")
Found = TypeVar("Found")

_BOOT = (
    "import sys; sys.path = [path for path in sys.path if path]; "
    "from search_to_signal.cli import main; sys.exit(main())"
)

MKL_PROCESSOR = "S2S_MKL_PROCESSOR"
# AVX2 with FMA: x86 servers and laptops of the last ten years have it, so that these kernels run, and round
# alike, on all of them. Beyond it each generation of processors has kernels of its own (D46).
KERNELS: Mapping[str, str] = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    MKL_PROCESSOR: "intel",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL",
}
# They decide bits, too; a run's own settings say how many.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_CPU_FACTS = Path("/proc/cpuinfo")

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def command_line(*arguments: str) -> list[str]:
    """The command that runs s2s with these arguments in a process of its own.

    ``python -m`` would put the working directory first, where any file may shadow a module that we import.
    """
    return [sys.executable, "-c", _BOOT, *arguments]


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """Within it the environment has these variables; afterwards it is as it was before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def wait_without_spinning() -> None:
    """Let idle threads sleep; spinning ones take the cores that another process's threads wait for.

    OpenMP reads its variable when torch is loaded, OpenBLAS its own with numpy, whose threads otherwise spin
    2**26 ticks each at once: this is for before. Results do not depend on them.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def fix_kernels() -> None:
    """Choose the kernels of torch, MKL, oneDNN, OpenBLAS and numpy by ``KERNELS``, not by the processor.

    The libraries read these variables when they are loaded: this is for before. What the user has set stays.
    Nothing is chosen where a processor lacks AVX2, which torch would not survive.
    """
    if {"avx2", "fma"} <= _cpu_flags():
        for name, value in KERNELS.items():
            os.environ.setdefault(name, value)


def kernels_in_force() -> dict[str, str]:
    """The variables that choose kernels and threads in this process, those that are set."""
    return {name: os.environ[name] for name in (*KERNELS, *THREADS) if name in os.environ}


def _cpu_flags() -> set[str]:
    """What the processor says it can do; nothing on other architectures and systems."""
    if platform.machine() != "x86_64":
        return set()
    try:
        lines = _CPU_FACTS.read_text().splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


@contextmanager
def without_cycle_search() -> Iterator[None]:
    """Within it memory is freed by reference counts alone; what is left then is not searched at exit either.

    For short work that makes no cycles, where Python would look for them in every module and record.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def keep_freed_memory() -> None:
    """Let glibc reuse freed blocks: otherwise every tensor of a few hundred KB is mapped and faulted anew."""
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return
    libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def end_with_parent(parent: int) -> None:
    """Have this process killed when the one that started it ends, however it ends; at once if it has."""
    try:
        ctypes.CDLL("libc.so.6").prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except OSError:
        return
    if os.getppid() != parent:
        sys.exit(1)


@contextmanager
def called_every(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """Within it, ``call`` runs every so many seconds in a thread of its own; none is running behind it."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(seconds):
            call()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def answering(server: "ThreadingHTTPServer") -> Iterator[None]:
    """Within it a server answers in threads of its own; afterwards it is closed."""
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def mapped(call: Callable[[Item], Found], items: Sequence[Item], least: int = 1) -> Iterator[Found]:
    """``call`` of every item in order, in a process per processor that gets ``least`` items or more, or here.

    Ctrl-C ends the processes without a word: the one that started them says what happened.
    """
    count = min(len(os.sched_getaffinity(0)), len(items) // least)
    if count < 2:
        yield from map(call, items)
        return
    # Loading it takes longer than many commands do.
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(
        count, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_DFL)
    ) as pool:
        yield from pool.map(call, items, chunksize=max(1, least // 4))


# Ctrl-C and SIGTERM: the first asks a run to stop in order, the next ends it at once.
#
# Signals that come together are one: ``timeout`` sends its command one and then the group that it is in, and
# a batch system sends one to every process, besides the one that a run gets from its parent.

_TOGETHER_S = 0.5


class Handler(ABC):
    """A handler of both signals; ``asked`` once one has come."""

    def __init__(self) -> None:
        self.asked = False
        self._last = -math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last >= _TOGETHER_S:
            self._last = now
            self.heed()

    @abstractmethod
    def heed(self) -> None:
        """Do what a signal asks for."""


class Interrupts(Handler):
    """Raises KeyboardInterrupt at each."""

    def heed(self) -> None:
        """Raise KeyboardInterrupt."""
        self.asked = True
        raise KeyboardInterrupt


class StopRequest(Handler):
    """Whether a run is asked to stop after the group that it is in.

    While it is in one, ``tell`` is set: the first signal calls it, in the middle of whatever the main thread
    does, and the run looks at ``asked`` when the group is done. Any other signal ends the run at once.
    """

    tell: Callable[[], None] | None = None

    def heed(self) -> None:
        """Ask for the stop, or end the run."""
        if self.tell is None or self.asked:
            self.end()
        self.asked = True
        # Where nobody reads what a run says, it stops all the same.
        with suppress(OSError):
            self.tell()

    def end(self, *said: str) -> NoReturn:
        """Raise KeyboardInterrupt; no SIGTERM does after it, which would break off what this begins."""
        if signal.getsignal(signal.SIGTERM) is self:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt(*said)


def install(handler: Handler) -> dict[signal.Signals, Any]:
    """Have a handler take both signals, Ctrl-C unless it is ignored; returns the handlers of before.

    For the main thread alone.
    """
    numbers: list[signal.Signals] = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    return {number: signal.signal(number, handler) for number in numbers}


def end_in_order() -> None:
    """Have SIGTERM end this process as Ctrl-C does, once: a second would break off what the first began."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Within it both signals raise KeyboardInterrupt, in other threads than the main one only Ctrl-C.

    Within another such context it is that one, so that what is asked is known to both.
    """
    now = signal.getsignal(signal.SIGTERM)
    if isinstance(now, Interrupts):
        yield now
        return
    handler = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield handler
        return
    before = install(handler)
    try:
        yield handler
    finally:
        for number, earlier in before.items():
            if earlier is not None:
                signal.signal(number, earlier)
