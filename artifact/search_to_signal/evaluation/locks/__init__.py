"""The kernel's part of isolation, one file per barrier.

``worker_locks`` sets them in their order, before a candidate is read.
"""

from enum import IntFlag
from functools import reduce
from operator import or_


class Barrier(IntFlag):
    """The barriers that can be on; a manifest records which ones were."""

    LIMITS = 1
    TIMERS = 2
    CLOCK = 4
    NO_NEW_PRIVS = 8
    SECCOMP = 16
    LANDLOCK = 32
    UNPRIVILEGED = 64


ALL = reduce(or_, Barrier)
