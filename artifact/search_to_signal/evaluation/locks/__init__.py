"""The kernel's part of isolation, one file per layer; every layer is set before a candidate is read."""

from enum import IntFlag


class Layer(IntFlag):
    """The layers that can be on; a manifest records which ones were."""

    LIMITS = 1
    TIMERS = 2
    CLOCK = 4
    NO_NEW_PRIVS = 8
    SECCOMP = 16
    LANDLOCK = 32
    UNPRIVILEGED = 64


ALL = (
    Layer.LIMITS
    | Layer.TIMERS
    | Layer.CLOCK
    | Layer.NO_NEW_PRIVS
    | Layer.SECCOMP
    | Layer.LANDLOCK
    | Layer.UNPRIVILEGED
)
