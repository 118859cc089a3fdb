"""Process-wide switches that determinism and speed need; called once, first thing in a run's process."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


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
