"""Where the time of a run goes; kept apart from the records, which must not depend on it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

PHASES = ("generation", "evaluation", "update")


class StepClock:
    """Seconds per phase of one step; what no phase claims is everything else."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the time inside to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - start

    def split(self) -> dict[str, float]:
        """Seconds of every phase, of everything else, and in total."""
        total = time.perf_counter() - self._start
        return {**self._seconds, "other": total - sum(self._seconds.values()), "total": total}
