"""Process-wide switches that determinism and speed need; called once, first thing in a run's process."""

import ctypes
import os
import signal
import sys

_BOOT = (
    "import sys; sys.path = [path for path in sys.path if path]; "
    "from search_to_signal.cli import main; sys.exit(main())"
)

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def command_line(*arguments: str) -> list[str]:
    """The command that runs s2s with these arguments in a process of its own.

    ``python -m`` would put the working directory first, where any file may shadow a module that we import.
    """
    return [sys.executable, "-c", _BOOT, *arguments]


def wait_without_spinning() -> None:
    """Let idle OpenMP threads sleep; spinning ones take the cores that another process's threads wait for.

    OpenMP reads the variable when torch is loaded: this is for before. Results do not depend on it.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


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
