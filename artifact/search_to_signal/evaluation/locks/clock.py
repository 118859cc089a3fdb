"""No clock: the processor's traps, and the vDSO, which needs no system call for it, is overwritten.

The vDSO also has entropy: glibc 2.41 and later draw from it, with a key from before the locks. It names the
processor, too. The times that it calculates from lie in memory next to it, which the kernel keeps writing.
"""

import ctypes
import functools

from search_to_signal.evaluation.locks.linux import LOCKS_READ_CLOCK, REFUSED_CLOCKS, prctl, syscall

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
    """Name, start and size of every mapping; first read while files can be."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        lines = [line.split() for line in maps]
    places = [(line[-1], *line[0].split("-")) for line in lines]
    return tuple((name, int(start, 16), int(end, 16) - int(start, 16)) for name, start, end in places)


def _mappings(kind: str) -> list[tuple[int, int]]:
    """Start and size of every mapping whose name begins so."""
    return [(start, size) for name, start, size in _maps() if name.startswith(kind)]


def _protect(protection: int) -> bool:
    """Change the protection of the whole vDSO."""
    protected = [syscall("mprotect", start, size, protection) == 0 for start, size in _mappings(_CODE)]
    return not _functions() or (bool(protected) and all(protected))
