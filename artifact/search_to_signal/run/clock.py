"""Where the time of a run goes; kept apart from the records, which must not depend on it.

Elapsed time also depends on how busy the machine was; processor time is what the run itself used (D30).
"""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from search_to_signal.records.manifest import Timing
from search_to_signal.records.schema import StepTiming

PROC = Path("/proc")
PHASES = ("generation", "evaluation", "update")


class StepClock:
    """Wall seconds per phase of every step, and processor seconds of the run's process tree.

    What no phase claims is everything else. A step lasts from the end of the one before: the time of a
    checkpoint in between belongs to it.
    """

    def __init__(self) -> None:
        self._start, self._processor = time.perf_counter(), tree_seconds()
        self._seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the time inside to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - start

    def timing(self, step: int) -> StepTiming:
        """The time of a step that ends now; begins the next one."""
        now, processor = time.perf_counter(), tree_seconds()
        total, seconds = now - self._start, self._seconds
        known = processor is not None and self._processor is not None
        used = processor - self._processor if known else None  # type: ignore[operator]
        self._start, self._processor, self._seconds = now, processor, dict.fromkeys(PHASES, 0.0)
        split = {**seconds, "other": total - sum(seconds.values()), "total": total}
        return StepTiming(step=step, seconds=split, processor_seconds=used)


def format_timing(split: Timing) -> str:
    """One line for people: speed, and the share of every phase."""
    shares = ((name, getattr(split, name) / split.total) for name in (*PHASES, "other"))
    parts = ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares)
    return f"{split.groups_per_minute:.1f} groups per minute ({parts})"


def tree_seconds() -> float | None:
    """User and system seconds so far; differences of two calls are what happened in between.

    Whoever has waited for a process has its time added to its own by the kernel, so a fork server holds its
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
