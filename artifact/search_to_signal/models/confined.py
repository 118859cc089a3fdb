"""What a stranger's files make a library do, done in a forked child with a budget of time and memory."""

import json
import os
import resource
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple, NoReturn

from search_to_signal.base import errors
from search_to_signal.base.processes import variables
from search_to_signal.sandbox.locks import footprint

At = Callable[[str], None]
Answer = Callable[..., Any]


class Budget(NamedTuple):
    """Of one answer: seconds of processor time, bytes beyond what the process has, bytes of the answer."""

    seconds: int = 20
    memory: int = 4 << 30
    answer: int = 64 << 20

    @property
    def wall_seconds(self) -> float:
        """For what waits instead of computing; a busy machine takes longer, too."""
        return 6.0 * self.seconds


BUDGET = Budget()


class ConfinedError(Exception):
    """No answer: where the child was, and what it did or what the library said; ``over`` a budget or dead."""

    def __init__(self, place: str, what: str, *, over: bool) -> None:
        super().__init__(f"{place}: {what}")
        self.place, self.what, self.over = place, what, over


class _Child(NamedTuple):
    parent: int
    pid: int
    asked: int
    told: int


class Confined:
    """A function of JSON values, made and called in a forked child that a budget bounds, call after call.

    ``make`` runs in the child, too; it is given ``at``, which notes the place that an error names. A child
    that went over its budget is replaced at the next call. Errors of this package arrive as they are.
    """

    def __init__(self, make: Callable[[At], Answer], budget: Budget | None = None) -> None:
        self._make, self._budget = make, budget or BUDGET
        self._lock = threading.Lock()
        self._place = ""
        self._child: _Child | None = None
        self._end: Callable[[], object] = lambda: None

    def __call__(self, *arguments: Any) -> Any:
        """The child's answer; raises ConfinedError without one."""
        with self._lock:
            child = self._child
            # A process that was forked meanwhile has no child of its own yet.
            if child is None or child.parent != os.getpid():
                child = self._start()
            with suppress(BrokenPipeError):  # the answer says what it died of
                _write(child.asked, json.dumps(arguments).encode() + b"\n")
            return self._answer(child)

    def close(self) -> None:
        """End the child."""
        self._child = None
        self._end()

    def _start(self) -> _Child:
        theirs_in, asked = os.pipe()
        told, theirs_out = os.pipe()
        # The library's threads do not come along with a fork; unless it is told so, it prints that.
        with variables(TOKENIZERS_PARALLELISM="false"):
            pid = os.fork()
            if pid == 0:
                _serve(self._make, self._budget, theirs_in, theirs_out)
        os.close(theirs_in)
        os.close(theirs_out)
        child = self._child = _Child(os.getpid(), pid, asked, told)
        self._end = weakref.finalize(self, _ended, child)
        try:
            self._answer(child)
        except BaseException:
            self.close()
            raise
        return child

    def _answer(self, child: _Child) -> Any:
        try:
            answer = json.loads(self._line(child))
        except BaseException:
            self.close()  # it would answer the last question next
            raise
        if "raised" not in answer:
            return answer["made"]
        if isinstance(kind := getattr(errors, answer["raised"], None), type):
            raise kind(answer["text"])
        if answer["raised"] == MemoryError.__name__:
            self.close()
            raise ConfinedError(self._place, _too_much_memory(self._budget), over=True)
        raise ConfinedError(self._place, answer["text"], over=False)

    def _line(self, child: _Child) -> bytes:
        """The line of the answer; the lines before it say where the child is."""
        deadline, said, ready = time.monotonic() + self._budget.wall_seconds, bytearray(), select.poll()
        ready.register(child.told)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not ready.poll(1000 * left):
                what = f"takes more than {self._budget.wall_seconds:g} s"
                raise ConfinedError(self._place, what, over=True)
            block = os.read(child.told, 1 << 16)
            if not block:
                raise ConfinedError(self._place, self._death(child), over=True)
            said += block
            if len(said) > self._budget.answer:
                what = f"makes more than {self._budget.answer >> 20} MB of a short text"
                raise ConfinedError(self._place, what, over=True)
            while b"\n" in block and (end := said.find(b"\n")) >= 0:
                line = bytes(said[:end])
                if line.startswith(b"{"):
                    return line
                self._place = line.decode()
                del said[: end + 1]

    def _death(self, child: _Child) -> str:
        end = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        number = end.si_status if end and end.si_code != os.CLD_EXITED else 0
        if number in (signal.SIGXCPU, signal.SIGKILL):
            return f"takes more than {self._budget.seconds} s of processor time"
        # Rust and C++ abort where memory ends, and Python ends where none is left to say so.
        no_memory = number in (0, signal.SIGABRT)
        return _too_much_memory(self._budget) if no_memory else "crashes the library that reads it"


def _too_much_memory(budget: Budget) -> str:
    return f"takes more than {budget.memory / (1 << 30):g} GiB of memory"


def _ended(child: _Child) -> None:
    os.close(child.asked)
    os.close(child.told)
    if child.parent != os.getpid():
        return
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child.pid, 0)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _serve(make: Callable[[At], Answer], budget: Budget, asked: int, told: int) -> NoReturn:
    """The child's life: it answers until nobody asks any more."""
    try:
        _confine(budget, asked, told)
        with os.fdopen(asked, "rb") as questions:
            _answer_all(make, budget, questions, lambda line: _write(told, line + b"\n"))
    finally:
        os._exit(0)


def _confine(budget: Budget, *kept: int) -> None:
    # A terminal, and whoever stops a group of processes, signals both, and the parent ends both: in order.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(silent, descriptor)
    # Locks and sockets of the parent end with the parent.
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with suppress(OSError):  # the one of the listing is closed already
                os.close(descriptor)
    _limit(resource.RLIMIT_AS, footprint()[0] + budget.memory)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answer_all(
    make: Callable[[At], Answer], budget: Budget, questions: BinaryIO, tell: Callable[[bytes], None]
) -> None:
    def at(place: str) -> None:
        tell(place.encode())

    with _Attempt(tell, budget) as made:
        answer = make(at)
        made.answer = b'{"made": null}'
    for line in questions:
        with _Attempt(tell, budget) as attempt:
            attempt.answer = json.dumps({"made": answer(*json.loads(line))}).encode()


class _Attempt:
    """Within it is bounded processor time; its answer, or whatever was raised, is told as one line.

    Whatever: a panic of a Rust library is no Exception.
    """

    def __init__(self, tell: Callable[[bytes], None], budget: Budget) -> None:
        self._tell, self._budget, self.answer = tell, budget, b""

    def __enter__(self) -> "_Attempt":
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        _limit(resource.RLIMIT_CPU, int(used) + 1 + self._budget.seconds)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if kind is not None:
            self.answer = json.dumps({"raised": kind.__name__, "text": str(error)[:1000]}).encode()
        self._tell(self.answer)
        return True
