"""Processor time of a run: of its process, of all processes below it, and of those of them that have ended.

Elapsed time also tells how busy the machine was; processor time tells what the run took of it (D30).
"""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def tree_seconds() -> float | None:
    """User and system seconds so far; differences of two calls are what happened in between.

    Whoever has waited for a process has its time added to its own by the kernel, so a zygote holds its
    workers'. Living children are counted in clock ticks (10 ms). None where the kernel lists no children:
    a sum without them would look right.
    """
    if not (PROC / f"self/task/{os.getpid()}/children").exists():
        return None
    living = sum(map(_seconds, _below("self")))
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return living + sum(use.ru_utime + use.ru_stime for use in usage)


def _below(process: str) -> Iterator[str]:
    for task in (PROC / process / "task").glob("*/children"):
        with suppress(OSError):  # it has just ended
            for child in task.read_text().split():
                yield child
                yield from _below(child)


def _seconds(process: str) -> float:
    """Its own seconds and those of the children that it has waited for."""
    with suppress(OSError):
        after_name = (PROC / process / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, after_name[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0
