"""Fork servers of evaluation pools that the next pool takes up: to start and check one takes 0.3 seconds.

A server forks a process for every program, so that no program finds anything of those before it.
"""

import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from search_to_signal.sandbox import pool
from search_to_signal.sandbox.fork_server import ForkServer, Variation, WorkerExit
from search_to_signal.sandbox.locks import ALL, Barrier


class Kept(ForkServer):
    """Goes back to its shelf when it is closed, unless it died or a worker of it may still run."""

    def __init__(self, shelf: "Shelf", variation: Variation, wanted: Barrier) -> None:
        """Start it."""
        self._shelf, self.kind = shelf, (variation, wanted)
        self.checked, self._busy = False, True
        super().__init__(variation, wanted)
        self._busy = False

    def spawn(self, wall_s: float, cpu_s: float, memory: int) -> socket.socket:
        """As ever."""
        self._busy = True
        return super().spawn(wall_s, cpu_s, memory)

    def reap(self) -> WorkerExit:
        """As ever."""
        ended = super().reap()
        self._busy = False
        return ended

    def close(self) -> None:
        """Give it back, or end it."""
        if self._busy or self.process.poll() is not None:
            super().close()
        else:
            self._shelf.put(self)

    def end(self) -> None:
        """End it in any case."""
        super().close()


class Shelf:
    """Servers that no pool uses."""

    def __init__(self) -> None:
        """Nothing is on it."""
        self._free: dict[tuple[Variation, Barrier], list[Kept]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, variation: Variation, wanted: Barrier = ALL) -> Kept:
        """One of this kind that is alive, or a new one."""
        with self._lock:
            free = self._free[variation, wanted]
            while free:
                server = free.pop()
                if server.process.poll() is None:
                    return server
        return Kept(self, variation, wanted)

    def put(self, server: Kept) -> None:
        """Keep it for the next pool."""
        with self._lock:
            self._free[server.kind].append(server)

    def close(self) -> None:
        """End all that are on it."""
        for server in [server for free in self._free.values() for server in free]:
            server.end()
        self._free.clear()


@contextmanager
def shelved(shelf: Shelf) -> Iterator[None]:
    """Within it pools of this process take their servers from a shelf; each server is checked once."""
    check = pool.check

    def check_once(server: Kept) -> None:
        if not server.checked:
            check(server)
            server.checked = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "ForkServer", shelf.take)
        patch.setattr(pool, "check", check_once)
        yield
