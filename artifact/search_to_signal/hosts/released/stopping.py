"""Ctrl-C and SIGTERM end a command, even where the host swallows what they raise, or Ray takes them over."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from search_to_signal.hosts.released.trainer import changed

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class StopSignal:
    """Whether a signal asked for the end; ``arm`` installs the handlers again."""

    asked: bool = False
    arm: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Raise KeyboardInterrupt, again where the host went on after the first, if a signal asked for it."""
        self.arm()
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def stoppable() -> Iterator[StopSignal]:
    """Context in which both signals raise KeyboardInterrupt, even if other handlers are set meanwhile.

    Ray sets two as it starts. The one in Python ends its processes and raises SystemExit: a host with a bare
    except goes on without them. The one in C aborts this process, and Python does not see it come: every
    ``check`` takes its place. Child processes set what they like. Off the main thread there is nothing to
    set.
    """
    stop, owner = StopSignal(), os.getpid()

    def end(number: int, frame: object) -> None:
        stop.asked = True
        raise KeyboardInterrupt

    if not _is_main():
        yield stop
        return
    set_handler = signal.signal

    def keep(number: int, handler: Any) -> Any:
        ours = number in _SIGNALS and os.getpid() == owner
        return signal.getsignal(number) if ours else set_handler(number, handler)

    def arm() -> None:
        if _is_main():
            for number in _SIGNALS:
                set_handler(number, end)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    stop.arm = arm
    try:
        arm()
        with changed(signal, signal=keep):
            yield stop
    finally:
        stop.arm = lambda: None
        for number, handler in before.items():
            set_handler(number, handler)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
