"""The system calls that a worker keeps; everything else, in every other ABI, ends the process."""

import ctypes
import os
import struct
from collections.abc import Sequence

from search_to_signal.evaluation.locks.limits import DATA_FD
from search_to_signal.evaluation.locks.linux import AUDIT_ARCH, NUMBERS, REFUSED_CLOCKS, syscall

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
