"""System calls that the standard library does not wrap, through ctypes."""

import ctypes
import platform
import sys
from types import MappingProxyType

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
