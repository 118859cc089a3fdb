"""Ctrl-C and SIGTERM end a command, even where the host swallows what they raise, or Ray takes them over."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from search_to_signal.hosts.released.trainer import changed

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Stop:
    """Whether somebody asked for the end."""

    asked: bool = False

    def check(self) -> None:
        """Raise KeyboardInterrupt, again where the host went on after the first, if somebody asked."""
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Within it both signals raise KeyboardInterrupt, whoever sets a handler of their own meanwhile.

    Ray sets one as it starts, which ends its processes and raises SystemExit: a host with a bare except goes
    on without them. Child processes set what they like. Off the main thread there is no handler to set.
    """
    stop, owner = Stop(), os.getpid()

    def end(number: int, frame: object) -> None:
        stop.asked = True
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    set_handler = signal.signal

    def keep(number: int, handler: Any) -> Any:
        ours = number in _SIGNALS and os.getpid() == owner
        return signal.getsignal(number) if ours else set_handler(number, handler)

    before = {number: set_handler(number, end) for number in _SIGNALS}
    try:
        with changed(signal, signal=keep):
            yield stop
    finally:
        for number, handler in before.items():
            set_handler(number, handler)
