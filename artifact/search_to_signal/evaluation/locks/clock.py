"""Trap on reading the processor's clock, which the vDSO reads without any system call."""

import ctypes

from search_to_signal.evaluation.locks.linux import prctl

_GET_TSC, _SET_TSC, _TSC_SIGSEGV = 25, 26, 2


def trap_clock() -> bool:
    """Make every read of the processor's clock a SIGSEGV."""
    return prctl(_SET_TSC, _TSC_SIGSEGV) == 0


def can_trap_clock() -> bool:
    """Whether this machine has the trap; x86-64 has, most others and some sandboxes have not."""
    state = ctypes.c_int(0)
    return prctl(_GET_TSC, ctypes.addressof(state)) == 0
