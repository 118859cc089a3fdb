"""Trap on reading the processor's clock, which the vDSO reads without any system call."""

from search_to_signal.evaluation.locks.linux import MACHINE, prctl

_SET_TSC, _TSC_SIGSEGV = 26, 2


def trap_clock() -> bool:
    """Make every clock read a SIGSEGV; only x86-64 can."""
    return MACHINE == "x86_64" and prctl(_SET_TSC, _TSC_SIGSEGV) == 0


def can_trap_clock() -> bool:
    """Whether this machine has the trap."""
    return MACHINE == "x86_64"
