"""Resource limits and timers of one worker."""

import resource
import signal

DATA_FD = 3
STACK_BYTES = 8 << 20

_ZERO = (
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_CORE,
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_MSGQUEUE,
    resource.RLIMIT_NPROC,
)


def footprint() -> tuple[int, int]:
    """Bytes of address space and of data that this process uses already."""
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    return tuple(int(fields[name].split()[0]) << 10 for name in ("VmSize", "VmData"))  # type: ignore[return-value]


def set_limits(used: tuple[int, int], memory: int, cpu_s: float) -> None:
    """Allow ``memory`` bytes beyond what is used, no files, no processes, one descriptor."""
    for kind in _ZERO:
        resource.setrlimit(kind, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (DATA_FD + 1, DATA_FD + 1))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 2))
    resource.setrlimit(resource.RLIMIT_AS, (used[0] + memory, used[0] + memory))
    resource.setrlimit(resource.RLIMIT_DATA, (used[1] + memory, used[1] + memory))


def set_timers(wall_s: float, cpu_s: float) -> None:
    """Let the kernel end this process; the default actions cannot be changed once seccomp is on."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, wall_s)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
