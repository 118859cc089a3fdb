"""What a long command has to do, how far it is, and how long the rest takes."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

# Below this share of the work, or these seconds, a speed says little about the rest.
_MEASURED_SHARE = 0.02
_MEASURED_SECONDS = 10.0


class Task(NamedTuple):
    """A part of the work: its layer is what ``name`` has before the first slash.

    ``steps`` may be an estimate until the task reports. ``cost`` is the cost of a step relative to those of
    other tasks, ``setup`` what comes before the first, in the same unit. ``is_run``: whether it is a run of a
    search, which are counted.
    """

    name: str
    steps: int
    cost: float = 1.0
    setup: float = 0.0
    is_run: bool = False

    def costs(self, steps: int) -> float:
        """What the first ``steps`` of it cost."""
        return self.setup + steps * self.cost if steps else 0.0

    @property
    def layer(self) -> str:
        """The evidence layer, or the whole name of a task that has none."""
        return self.name.partition("/")[0]


@dataclass
class Status:
    """Where a task that has begun stands."""

    task: Task
    done: int
    total: int
    note: str
    since: float

    @property
    def finished(self) -> bool:
        return self.done >= self.total


@dataclass
class Workload:
    """The planned tasks and what has reported; may be used from several threads."""

    planned: Iterable[Task] = ()
    clock: Callable[[], float] = time.monotonic
    _tasks: dict[str, Task] = field(init=False)
    _begun: dict[str, Status] = field(init=False, default_factory=dict)
    _worked: float = field(init=False, default=0.0)
    _start: float = field(init=False)
    _layers: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self._tasks = {task.name: task for task in self.planned}
        self.has_plan = bool(self._tasks)
        self._layers = list(dict.fromkeys(task.layer for task in self._tasks.values()))
        self._start = self.clock()
        self._lock = threading.Lock()

    def update(self, name: str, done: int, total: int, note: str = "") -> Status:
        """Note where a task stands; a first count above one was reached before this command."""
        with self._lock:
            task = self._tasks.setdefault(name, Task(name, total))
            before = self._begun.get(name)
            since = before.since if before else self.clock()
            seen = before.done if before and before.done else done * (done > 1)
            self._worked += max(task.costs(done) - task.costs(seen), 0.0)
            self._begun[name] = status = Status(task, done, total, note, since)
            return status

    @property
    def running(self) -> list[Status]:
        """The tasks that have begun and not finished, in the order in which they began."""
        with self._lock:
            return [status for status in self._begun.values() if not status.finished]

    @property
    def share(self) -> float:
        """How much of the work is done, 0 to 1."""
        whole, rest = self._costs()
        return 1.0 - rest / whole if whole else 0.0

    def seconds_left(self) -> float | None:
        """An estimate from the speed so far; None while there is none."""
        whole, rest = self._costs()
        elapsed = self.clock() - self._start
        if elapsed < _MEASURED_SECONDS or self._worked < _MEASURED_SHARE * whole:
            return None
        return rest * elapsed / self._worked

    def _costs(self) -> tuple[float, float]:
        """Of the whole work and of what is left of it; layers follow each other, so earlier ones are done."""
        whole = rest = 0.0
        with self._lock:
            begun = [self._layers.index(layer) for layer in self._begun_layers()]
            done_layers = self._layers[: max(begun, default=0)]
            for task in self._tasks.values():
                status = self._begun.get(task.name)
                if task.layer in done_layers and (status is None or not status.finished):
                    continue
                steps, done = (status.total, status.done) if status else (task.steps, 0)
                whole += task.costs(steps)
                rest += max(task.costs(steps) - task.costs(done), 0.0)
        return whole, rest

    def heading(self) -> str:
        """Layer, share, time left, layer k of n and run 7 of 28, on one line."""
        with self._lock:
            tasks, begun = list(self._tasks.values()), list(self._begun.values())
            layers = self._layers
            current = (self._begun_layers(unfinished=True) or self._begun_layers() or layers)[-1]
        runs = sum(task.is_run for task in tasks)
        counted = f", run {sum(status.task.is_run for status in begun)} of {runs}" if runs else ""
        layer = f"layer {layers.index(current) + 1} of {len(layers)}"
        return f"{current}: {100 * self.share:.0f} %, {self._remaining()}; {layer}{counted}"

    def _begun_layers(self, unfinished: bool = False) -> list[str]:
        """The planned layers of what has begun; what a layer makes again of an earlier one is not planned."""
        statuses = (status for status in self._begun.values() if not (unfinished and status.finished))
        return [status.task.layer for status in statuses if status.task.layer in self._layers]

    def _remaining(self) -> str:
        seconds = self.seconds_left()
        return "time left: not known yet" if seconds is None else f"about {duration(seconds)} left"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours for people."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{max(round(seconds), 1)} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
