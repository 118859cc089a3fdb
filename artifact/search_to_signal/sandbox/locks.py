"""The kernel's part of isolation: each barrier, and all locks of a worker in their order."""

import ctypes
import functools
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import reduce
from operator import or_
from types import MappingProxyType


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


# Resource limits and timers of one worker.

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


# System calls that the standard library does not wrap, through ctypes.

MACHINE = platform.machine()

_X86_64 = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "lseek": 8, "mmap": 9,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "ioctl": 16,
    "access": 21, "mremap": 25, "madvise": 28, "exit": 60, "getcwd": 79, "readlink": 89, "futex": 202,
    "getdents64": 217, "clock_gettime": 228, "exit_group": 231, "openat": 257, "newfstatat": 262,
    "readlinkat": 267, "faccessat": 269, "seccomp": 317, "getrandom": 318, "statx": 332,
    "faccessat2": 439, "landlock_create_ruleset": 444, "landlock_restrict_self": 446,
}  # fmt: skip
_AARCH64 = {
    "read": 63, "write": 64, "close": 57, "fstat": 80, "lseek": 62, "mmap": 222, "mprotect": 226,
    "munmap": 215, "brk": 214, "rt_sigaction": 134, "rt_sigprocmask": 135, "ioctl": 29, "mremap": 216,
    "madvise": 233, "exit": 93, "getcwd": 17, "futex": 98, "clock_gettime": 113, "getdents64": 61,
    "exit_group": 94, "openat": 56, "newfstatat": 79, "readlinkat": 78, "faccessat": 48, "seccomp": 277,
    "getrandom": 278, "statx": 291, "faccessat2": 439, "landlock_create_ruleset": 444,
    "landlock_restrict_self": 446,
}  # fmt: skip

# The aarch64 numbers are from the kernel's generic table and have never been run by us.
NUMBERS = MappingProxyType({"x86_64": _X86_64, "aarch64": _AARCH64}.get(MACHINE, {}))
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}.get(MACHINE, 0)

# From 3.11 on CPython asks for the monotonic time whenever it takes a lock, and goes on when that is refused.
LOCKS_READ_CLOCK = sys.version_info >= (3, 11)
# Qhull asks for its processor time and does without.
_MONOTONIC, _PROCESS_CPU = 1, 2
REFUSED_CLOCKS = (_MONOTONIC, _PROCESS_CPU) if LOCKS_READ_CLOCK else (_PROCESS_CPU,)

_libc = ctypes.CDLL(None, use_errno=True)


def syscall(name: str, *arguments: int | bytes | None) -> int:
    """Call by name; returns the result, or minus the errno."""
    if name not in NUMBERS:
        return -38
    words = [a if a is None or isinstance(a, bytes) else ctypes.c_ulong(a) for a in arguments]
    result = int(_libc.syscall(ctypes.c_long(NUMBERS[name]), *words))
    return -ctypes.get_errno() if result == -1 else result


def prctl(*arguments: int) -> int:
    """Call prctl; returns its result, -1 on failure."""
    padded = (*arguments, 0, 0, 0, 0)[:5]
    return int(_libc.prctl(*[ctypes.c_ulong(a) for a in padded]))


# No clock: the processor's traps, and the vDSO, which needs no system call for it, is overwritten.
#
# The vDSO also has entropy: glibc 2.41 and later draw from it, with a key from before the locks. It names the
# processor, too. The times that it calculates from lie in memory next to it, which the kernel keeps writing.

_GET_TSC, _SET_TSC, _TSC_SIGSEGV = 25, 26, 2
_READ, _WRITE, _EXECUTE = 1, 2, 4
# x86-64: hlt, a SIGSEGV outside the kernel; or rax, -1 and ret, which is EPERM.
_END, _REFUSE = b"\xf4", b"\x48\x83\xc8\xff\xc3"


def _clock_gettime(refused: tuple[int, ...]) -> bytes:
    """EPERM for these clocks, by cmp edi and je each, and the end for every other."""
    steps = [bytes((0x83, 0xFF, clock, 0x74, 5 * after + len(_END))) for after, clock in enumerate(refused)]
    return b"".join(steps[::-1]) + _END + _REFUSE


# Functions lie 16 bytes apart, and no replacement is longer.
_REPLACEMENTS = {
    "__vdso_clock_gettime": _clock_gettime(REFUSED_CLOCKS),
    "__vdso_gettimeofday": _END,
    "__vdso_time": _REFUSE,
    "__vdso_getrandom": _REFUSE,
    "__vdso_clock_getres": _REFUSE,
    "__vdso_getcpu": _REFUSE,
}
_CODE, _DATA = "[vdso]", "[vvar"


def trap_clock() -> bool:
    """Make every read of a clock a SIGSEGV, or for REFUSED_CLOCKS an error; for this process and for good."""
    replaced = _protect(_READ | _WRITE | _EXECUTE)
    if replaced:
        for name, address in _functions().items():
            ctypes.memmove(address, _REPLACEMENTS[name], len(_REPLACEMENTS[name]))
        _protect(_READ | _EXECUTE)
        if not all(syscall("munmap", start, size) == 0 for start, size in _mappings(_DATA)):
            return False
    return (replaced or not LOCKS_READ_CLOCK) and prctl(_SET_TSC, _TSC_SIGSEGV) == 0


def can_trap_clock() -> bool:
    """Whether this machine has the trap; x86-64 has, most others and some sandboxes have not.

    Also false where Python's own locks would meet it, because the kernel keeps the vDSO as it is.
    """
    state = ctypes.c_int(0)
    if prctl(_GET_TSC, ctypes.addressof(state)) != 0:
        return False
    writable = _protect(_READ | _WRITE | _EXECUTE) and _protect(_READ | _EXECUTE)
    return writable or not LOCKS_READ_CLOCK


@functools.cache
def _functions() -> dict[str, int]:
    """Addresses of what is replaced, by name; none where the kernel has no vDSO."""
    try:
        library = ctypes.CDLL("linux-vdso.so.1")
    except OSError:
        return {}
    functions = {name: getattr(library, name) for name in _REPLACEMENTS if hasattr(library, name)}
    return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in functions.items()}


@functools.cache
def _maps() -> tuple[tuple[str, int, int], ...]:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        lines = [line.split() for line in maps]
    places = [(line[-1], *line[0].split("-")) for line in lines]
    return tuple((name, int(start, 16), int(end, 16) - int(start, 16)) for name, start, end in places)


def _mappings(kind: str) -> list[tuple[int, int]]:
    return [(start, size) for name, start, size in _maps() if name.startswith(kind)]


def _protect(protection: int) -> bool:
    protected = [syscall("mprotect", start, size, protection) == 0 for start, size in _mappings(_CODE)]
    return not _functions() or (bool(protected) and all(protected))


# A second lock where the kernel has it: no path, no TCP port, no signal out of the domain.

_VERSION = 1
# Number of file-system rights by ABI: 13 in the first, then refer, truncate and ioctl_dev.
_RIGHTS = ((5, 16), (3, 15), (2, 14), (1, 13))
_NETWORK_ABI, _SCOPE_ABI = 4, 6
_BIND_AND_CONNECT = 3
_SIGNAL_AND_ABSTRACT_SOCKET = 3


def landlock_abi() -> int:
    """ABI of the running kernel, 0 without Landlock."""
    return max(0, syscall("landlock_create_ruleset", None, 0, _VERSION))


def deny_everything() -> int:
    """Handle every right and grant none, for this process and its children; returns the ABI or 0."""
    abi = landlock_abi()
    if abi == 0:
        return 0
    rights = next(bits for least, bits in _RIGHTS if abi >= least)
    words = [(1 << rights) - 1]
    words += [_BIND_AND_CONNECT] if abi >= _NETWORK_ABI else []
    words += [_SIGNAL_AND_ABSTRACT_SOCKET] if abi >= _SCOPE_ABI else []
    attribute = struct.pack(f"<{len(words)}Q", *words)
    ruleset = syscall("landlock_create_ruleset", attribute, len(attribute), 0)
    if ruleset < 0:
        return 0
    failed = syscall("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)
    return 0 if failed else abi


# Give up what a fork server may have inherited: user id, dumpability, the gain of new privileges.

NOBODY = 65534
_SET_DUMPABLE, _SET_NO_NEW_PRIVS, _SET_PDEATHSIG = 4, 38, 1


def drop_user() -> bool:
    """Become user nobody when root; returns whether this process is unprivileged afterwards."""
    if os.geteuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        except OSError:
            return False
    return True


def forbid_new_privileges() -> bool:
    """Set no_new_privs, and close /proc/self to others of the same user id."""
    prctl(_SET_DUMPABLE, 0)
    return prctl(_SET_NO_NEW_PRIVS, 1) == 0


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL when the parent dies, and end at once if it is dead already."""
    prctl(_SET_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(1)


# The system calls that a worker keeps; everything else, in every other ABI, ends the process.

Instruction = tuple[int, int, int, int]

KILL, REFUSE, ALLOW = 0x80000000, 0x00050000 | 1, 0x7FFF0000
LOAD_WORD, AND, JUMP_EQUAL, JUMP_GE, JUMP_SET, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET, _ARGUMENT_OFFSET = 0, 4, 16
_X32_BIT = 0x40000000
_PROT_EXEC = 4
_FUTEX_COMMAND_MASK, _FUTEX_WAKE = 0x7F, 1
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_GET_ACTION_AVAIL, _SET_MODE_FILTER, _SPEC_ALLOW = 2, 1, 4

_FREE = ("munmap", "brk", "mremap", "madvise", "exit", "exit_group")
# Look-ups that honest code makes in passing (an import that fails, a shape of stdout): refused, not fatal.
_REFUSED = (
    "close", "stat", "fstat", "lstat", "lseek", "rt_sigaction", "rt_sigprocmask", "ioctl", "access",
    "getcwd", "readlink", "getdents64", "newfstatat", "readlinkat", "faccessat", "getrandom", "statx",
    "faccessat2",
)  # fmt: skip


def _returns(verdict: int) -> Instruction:
    return (RETURN, 0, 0, verdict)


def _plain(name: str, verdict: int) -> list[Instruction]:
    return [(JUMP_EQUAL, 0, 1, NUMBERS[name]), _returns(verdict)] if name in NUMBERS else []


def _by_argument(name: str, index: int, test: int, value: int, yes: int, no: int) -> list[Instruction]:
    if name not in NUMBERS:
        return []
    load = (LOAD_WORD, 0, 0, _ARGUMENT_OFFSET + 8 * index)
    return [(JUMP_EQUAL, 0, 4, NUMBERS[name]), load, (test, 0, 1, value), _returns(yes), _returns(no)]


def _waking_futex() -> list[Instruction]:
    # glibc's pthread_once, reached from numpy's temporary elision, wakes nobody; a wait would be for ever.
    load = (LOAD_WORD, 0, 0, _ARGUMENT_OFFSET + 8)
    mask = (AND, 0, 0, _FUTEX_COMMAND_MASK)
    test = (JUMP_EQUAL, 0, 1, _FUTEX_WAKE)
    return [(JUMP_EQUAL, 0, 5, NUMBERS["futex"]), load, mask, test, _returns(ALLOW), _returns(KILL)]


def _clocks() -> list[Instruction]:
    load = (LOAD_WORD, 0, 0, _ARGUMENT_OFFSET)
    refused = [step for clock in REFUSED_CLOCKS for step in ((JUMP_EQUAL, 0, 1, clock), _returns(REFUSE))]
    return [(JUMP_EQUAL, 0, len(refused) + 2, NUMBERS["clock_gettime"]), load, *refused, _returns(KILL)]


def rules() -> list[Instruction]:
    """The filter as instructions (code, jump if true, jump if false, constant)."""
    program: list[Instruction] = [
        (LOAD_WORD, 0, 0, _ARCH_OFFSET),
        (JUMP_EQUAL, 1, 0, AUDIT_ARCH),
        _returns(KILL),
        (LOAD_WORD, 0, 0, _NUMBER_OFFSET),
        (JUMP_GE, 0, 1, _X32_BIT),
        _returns(KILL),
    ]
    program += _by_argument("read", 0, JUMP_EQUAL, DATA_FD, ALLOW, REFUSE)
    program += _by_argument("write", 0, JUMP_EQUAL, DATA_FD, ALLOW, REFUSE)
    program += _by_argument("mmap", 2, JUMP_SET, _PROT_EXEC, KILL, ALLOW)
    program += _by_argument("mprotect", 2, JUMP_SET, _PROT_EXEC, KILL, ALLOW)
    program += _waking_futex()
    program += _clocks()
    program += [step for name in _FREE for step in _plain(name, ALLOW)]
    program += _by_argument("openat", 2, JUMP_SET, _WRITING, KILL, REFUSE)
    program += _by_argument("open", 1, JUMP_SET, _WRITING, KILL, REFUSE)
    program += [step for name in _REFUSED for step in _plain(name, REFUSE)]
    return [*program, _returns(KILL)]


class Filter:
    """A filter in the memory layout that the kernel reads; build it once, install it in every worker."""

    def __init__(self, program: Sequence[Instruction]) -> None:
        code = b"".join(struct.pack("<HBBI", *step) for step in program)
        self._code = ctypes.create_string_buffer(code, len(code))
        self._header = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(self._code))

    def install(self) -> bool:
        """Lock this process for good; needs no_new_privs or root."""
        return syscall("seccomp", _SET_MODE_FILTER, _SPEC_ALLOW, self._header) == 0


def can_filter() -> bool:
    """Whether the kernel offers seccomp filters that kill the process, to this process."""
    return bool(NUMBERS) and syscall("seccomp", _GET_ACTION_AVAIL, 0, struct.pack("<I", KILL)) == 0


# All locks of a worker in their order: prepared once by the fork server, applied by each worker.

_MOST_DESCRIPTORS = 4096


@dataclass(frozen=True)
class WorkerLocks:
    """Prepared locks: barriers that hold, seccomp filter, Landlock version (0 without), memory in use."""

    barriers: Barrier
    filter: Filter | None
    landlock_abi: int
    used: tuple[int, int]


def prepare_locks(wanted: Barrier) -> WorkerLocks:
    """In the fork server: set the locks that workers inherit, prepare those of the others that can hold."""
    barriers = wanted & (Barrier.LIMITS | Barrier.TIMERS)
    program = Filter(rules()) if Barrier.SECCOMP in wanted and can_filter() else None
    used = footprint()
    barriers |= Barrier.SECCOMP if program else Barrier(0)
    barriers |= Barrier.CLOCK if Barrier.CLOCK in wanted and can_trap_clock() else Barrier(0)
    barriers |= Barrier.UNPRIVILEGED if Barrier.UNPRIVILEGED in wanted and drop_user() else Barrier(0)
    held = Barrier.NO_NEW_PRIVS in wanted and forbid_new_privileges()
    barriers |= Barrier.NO_NEW_PRIVS if held else Barrier(0)
    abi = deny_everything() if Barrier.LANDLOCK in wanted else 0
    barriers |= Barrier.LANDLOCK if abi else Barrier(0)
    return WorkerLocks(barriers, program, abi, used)


def leave_server(server: int, data_fd: int) -> None:
    """In the worker: die with the fork server, and keep no descriptor but the data socket."""
    die_with_parent(server)
    os.dup2(data_fd, DATA_FD)
    os.closerange(0, DATA_FD)
    os.closerange(DATA_FD + 1, _MOST_DESCRIPTORS)


def apply_locks(locks: WorkerLocks, wall_s: float, cpu_s: float, memory: int) -> bool:
    """In the worker: limits, timers, clock, and the filter last; whether all of these hold."""
    if Barrier.LIMITS in locks.barriers:
        set_limits(locks.used, memory, cpu_s)
    if Barrier.TIMERS in locks.barriers:
        set_timers(wall_s, cpu_s)
    if Barrier.CLOCK in locks.barriers and not trap_clock():
        return False
    return locks.filter is None or locks.filter.install()
