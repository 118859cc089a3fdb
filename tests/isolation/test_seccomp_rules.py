"""The filter, interpreted for every system call number: what is not named is killed."""

import os

import pytest

from search_to_signal.sandbox import locks
from search_to_signal.sandbox.locks import AUDIT_ARCH, NUMBERS, REFUSED_CLOCKS

KILL, REFUSE, ALLOW = locks.KILL, locks.REFUSE, locks.ALLOW
PROGRAM = locks.rules()
PROT_EXEC = 4
OPENING = (NUMBERS["openat"], 2), (NUMBERS.get("open", -1), 1)


def verdict(number: int, arguments: tuple[int, ...] = (), arch: int = AUDIT_ARCH) -> int:
    """Interpret the classic BPF program over (number, arch, six arguments)."""
    words = {0: number & 0xFFFFFFFF, 4: arch}
    for index, value in enumerate((*arguments, 0, 0, 0, 0, 0, 0)[:6]):
        words[16 + 8 * index] = value & 0xFFFFFFFF
        words[20 + 8 * index] = value >> 32 & 0xFFFFFFFF
    at, accumulator = 0, 0
    while True:
        code, yes, no, constant = PROGRAM[at]
        at += 1
        if code == locks.RETURN:
            return constant
        if code == locks.LOAD_WORD:
            accumulator = words[constant]
        elif code == locks.AND:
            accumulator &= constant
        else:
            tests = {
                locks.JUMP_EQUAL: accumulator == constant,
                locks.JUMP_GE: accumulator >= constant,
                locks.JUMP_SET: bool(accumulator & constant),
            }
            at += yes if tests[code] else no


def allowed(arguments: tuple[int, ...]) -> set[int]:
    """Numbers below 600 that are allowed with these arguments."""
    return {number for number in range(600) if verdict(number, arguments) == ALLOW}


def test_only_eleven_calls_are_ever_allowed() -> None:
    """Reading and writing the socket, memory, waking, exiting; for any first three arguments tried."""
    values = (0, 1, 3, 2**32 + 3, 2**64 - 1)
    found = set().union(*(allowed((a, b, c)) for a in values for b in values for c in values))
    names = ("read", "write", "mmap", "mprotect", "munmap", "brk", "mremap", "madvise", "futex")
    assert found == {NUMBERS[name] for name in (*names, "exit", "exit_group")}


@pytest.mark.parametrize("fd", [0, 1, 2, 4, 99])
def test_only_the_data_socket_is_read_and_written(fd: int) -> None:
    """Any other descriptor is refused."""
    assert [verdict(NUMBERS[name], (fd,)) for name in ("read", "write")] == [REFUSE, REFUSE]


@pytest.mark.parametrize("protection", [4, 5, 6, 7, 0xFF])
def test_memory_is_never_executable(protection: int) -> None:
    """PROT_EXEC in any company kills."""
    assert {verdict(NUMBERS[name], (0, 0, protection)) for name in ("mmap", "mprotect")} == {KILL}


def test_a_futex_may_only_wake() -> None:
    """Waiting would be for ever, and the other commands have a history of kernel bugs."""
    found = {command: verdict(NUMBERS["futex"], (0, command)) for command in range(256)}
    assert found == {command: ALLOW if command in (1, 1 | 128) else KILL for command in range(256)}


@pytest.mark.parametrize(("number", "index"), OPENING)
def test_opening_is_refused_and_for_writing_kills(number: int, index: int) -> None:
    """A failed look-up of an import is harmless, an attempt to write is not."""
    if number < 0:
        pytest.skip("this machine has no open")
    for flags, expected in ((os.O_RDONLY, REFUSE), (os.O_WRONLY, KILL), (os.O_RDWR | os.O_CREAT, KILL)):
        assert verdict(number, (0,) * index + (flags,)) == expected


def test_no_clock_is_read() -> None:
    """Asking for a clock that libraries do without fails, any other kills."""
    found = {clock: verdict(NUMBERS["clock_gettime"], (clock,)) for clock in range(12)}
    assert found == {clock: REFUSE if clock in REFUSED_CLOCKS else KILL for clock in range(12)}


def test_other_interfaces_of_the_processor_are_killed() -> None:
    """x32 numbers and foreign architectures do not slip past."""
    for name in ("read", "write", "exit"):
        assert verdict(NUMBERS[name] | 0x40000000, (3,)) == KILL
        assert verdict(NUMBERS[name], (3,), arch=0x40000003) == KILL
    assert verdict(-1) == KILL
