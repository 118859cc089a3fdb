"""Ctrl-C and SIGTERM: the first asks a run to stop in order, the next ends it at once.

Signals that come together are one: ``timeout`` sends its command one and then the group that it is in, and a
batch system sends one to every process, besides the one that a run gets from its parent.
"""

import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

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
