"""Give up what a fork server may have inherited: user id, dumpability, the gain of new privileges."""

import os

from search_to_signal.evaluation.locks.linux import prctl

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
