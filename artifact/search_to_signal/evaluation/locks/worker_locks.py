"""All locks of a worker in their order: prepared once by the fork server, applied by each worker."""

import os
from dataclasses import dataclass

from search_to_signal.evaluation.locks import Barrier, clock, landlock, limits, privileges, seccomp

_MOST_DESCRIPTORS = 4096


@dataclass(frozen=True)
class WorkerLocks:
    """Prepared locks: barriers that hold, seccomp filter, Landlock version (0 without), memory in use."""

    barriers: Barrier
    filter: seccomp.Filter | None
    landlock_abi: int
    used: tuple[int, int]


def prepare_locks(wanted: Barrier) -> WorkerLocks:
    """In the fork server: set the locks that workers inherit, prepare those of the others that can hold."""
    barriers = wanted & (Barrier.LIMITS | Barrier.TIMERS)
    program = seccomp.Filter(seccomp.rules()) if Barrier.SECCOMP in wanted and seccomp.can_filter() else None
    used = limits.footprint()
    barriers |= Barrier.SECCOMP if program else Barrier(0)
    barriers |= Barrier.CLOCK if Barrier.CLOCK in wanted and clock.can_trap_clock() else Barrier(0)
    barriers |= (
        Barrier.UNPRIVILEGED if Barrier.UNPRIVILEGED in wanted and privileges.drop_user() else Barrier(0)
    )
    held = Barrier.NO_NEW_PRIVS in wanted and privileges.forbid_new_privileges()
    barriers |= Barrier.NO_NEW_PRIVS if held else Barrier(0)
    abi = landlock.deny_everything() if Barrier.LANDLOCK in wanted else 0
    barriers |= Barrier.LANDLOCK if abi else Barrier(0)
    return WorkerLocks(barriers, program, abi, used)


def leave_server(server: int, data_fd: int) -> None:
    """In the worker: die with the fork server, and keep no descriptor but the data socket."""
    privileges.die_with_parent(server)
    os.dup2(data_fd, limits.DATA_FD)
    os.closerange(0, limits.DATA_FD)
    os.closerange(limits.DATA_FD + 1, _MOST_DESCRIPTORS)


def apply_locks(locks: WorkerLocks, wall_s: float, cpu_s: float, memory: int) -> bool:
    """In the worker: limits, timers, clock, and the filter last; whether all of these hold."""
    if Barrier.LIMITS in locks.barriers:
        limits.set_limits(locks.used, memory, cpu_s)
    if Barrier.TIMERS in locks.barriers:
        limits.set_timers(wall_s, cpu_s)
    if Barrier.CLOCK in locks.barriers and not clock.trap_clock():
        return False
    return locks.filter is None or locks.filter.install()
