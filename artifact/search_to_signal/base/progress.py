"""Progress on long work: a few live lines on a terminal, a plain line every half minute everywhere else."""

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO

from search_to_signal.base.processes import called_every

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, RenderableType

# Below this share of the work, or these seconds, a speed says little about the rest.
_MEASURED_SHARE = 0.02
_MEASURED_SECONDS = 10.0
# How much a step counts against the next one of its kind: the last thirty or so decide.
_MEMORY = 0.97


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

    @property
    def kind(self) -> tuple[str, float]:
        """What takes equally long: steps of one layer and cost."""
        return self.layer, self.cost


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
class _Pace:
    """What steps of one kind took, recent ones first: seconds of the clock, and their cost."""

    seconds: float = 0.0
    cost: float = 0.0
    waiting: float = 0.0

    def advance(self, cost: float) -> None:
        """Note steps that are done, and that took what has passed since the last ones."""
        self.seconds = _MEMORY * self.seconds + self.waiting
        self.cost = _MEMORY * self.cost + cost
        self.waiting = 0.0


@dataclass
class Workload:
    """The planned tasks and what has reported; may be used from several threads."""

    planned: Iterable[Task] = ()
    clock: Callable[[], float] = time.monotonic
    _tasks: dict[str, Task] = field(init=False)
    _begun: dict[str, Status] = field(init=False, default_factory=dict)
    _worked: float = field(init=False, default=0.0)
    _start: float = field(init=False)
    _now: float = field(init=False)
    _paces: dict[tuple[str, float], _Pace] = field(init=False, default_factory=dict)
    _layers: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self._tasks = {task.name: task for task in self.planned}
        self.has_plan = bool(self._tasks)
        self._layers = list(dict.fromkeys(task.layer for task in self._tasks.values()))
        self._start = self._now = self.clock()
        self._lock = threading.Lock()

    def update(self, name: str, done: int, total: int, note: str = "") -> Status:
        """Note where a task stands; a first count above one was reached before this command."""
        with self._lock:
            task = self._tasks.setdefault(name, Task(name, total))
            before = self._begun.get(name)
            since = before.since if before else self.clock()
            seen = before.done if before and before.done else done * (done > 1)
            self._pass_time(task)
            if (worked := task.costs(done) - task.costs(seen)) > 0.0:
                self._worked += worked
                self._paces[task.kind].advance(worked)
            self._begun[name] = status = Status(task, done, total, note, since)
            return status

    def _pass_time(self, task: Task) -> None:
        """Share the time since the last report among what runs; where nothing runs, ``task`` took it."""
        passed, self._now = self.clock() - self._now, self.clock()
        running = [status.task for status in self._begun.values() if not status.finished] or [task]
        self._paces.setdefault(task.kind, _Pace())
        for one in running:
            self._paces[one.kind].waiting += passed / len(running)

    @property
    def running(self) -> list[Status]:
        """The tasks that have begun and not finished, in the order in which they began."""
        with self._lock:
            return [status for status in self._begun.values() if not status.finished]

    @property
    def share(self) -> float:
        """How much of the work is done, 0 to 1."""
        whole, rest = self._costs()
        return 1.0 - sum(rest.values()) / whole if whole else 0.0

    def seconds_left(self) -> float | None:
        """An estimate from what recent steps of each kind took; None while there is none.

        A kind without a finished step takes, for its cost, as long as the others. Between two reports the
        time that passes is taken off, up to what the steps under way take.
        """
        whole, rest = self._costs()
        elapsed = self.clock() - self._start
        if elapsed < _MEASURED_SECONDS or self._worked < _MEASURED_SHARE * whole:
            return None
        paces = dict(self._paces)
        others = sum(pace.seconds for pace in paces.values()) / sum(pace.cost for pace in paces.values())
        known = {kind: pace.seconds / pace.cost for kind, pace in paces.items() if pace.cost}
        ahead = sum(cost * known.get(kind, others) for kind, cost in rest.items())
        under_way = sum(cost * known.get(kind, others) for kind, cost in self._under_way())
        return ahead - min(self.clock() - self._now, under_way)

    def _under_way(self) -> Iterator[tuple[tuple[str, float], float]]:
        """Kind and cost of each step under way: between tasks, of the first step of the next one."""
        running = self.running
        for status in running:
            yield status.task.kind, status.task.costs(status.done + 1) - status.task.costs(status.done)
        coming = [] if running else [task for task in self._tasks.values() if task.name not in self._begun]
        yield from ((task.kind, task.costs(1)) for task in coming[:1])

    def _costs(self) -> tuple[float, dict[tuple[str, float], float]]:
        """Of the whole work, and by kind what is left; layers follow each other, so earlier ones are done."""
        whole, rest = 0.0, dict[tuple[str, float], float]()
        with self._lock:
            begun = [self._layers.index(layer) for layer in self._begun_layers()]
            done_layers = self._layers[: max(begun, default=0)]
            for task in self._tasks.values():
                status = self._begun.get(task.name)
                if task.layer in done_layers and (status is None or not status.finished):
                    continue
                steps, done = (status.total, status.done) if status else (task.steps, 0)
                whole += task.costs(steps)
                left = max(task.costs(steps) - task.costs(done), 0.0)
                rest[task.kind] = rest.get(task.kind, 0.0) + left
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
        seconds = self.seconds_left()
        left = "time left: not known yet" if seconds is None else f"about {duration(seconds)} left"
        return f"{current}: {100 * self.share:.0f} %, {left}; {layer}{counted}"

    def _begun_layers(self, unfinished: bool = False) -> list[str]:
        """The planned layers of what has begun; what a layer makes again of an earlier one is not planned."""
        statuses = (status for status in self._begun.values() if not (unfinished and status.finished))
        return [status.task.layer for status in statuses if status.task.layer in self._layers]


def duration(seconds: float) -> str:
    """Seconds, minutes or hours for people."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{max(round(seconds), 1)} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


PLAIN_SECONDS = 30.0
_SLOW_SECONDS = 2.0
LINE_LIMIT = 1000
_REDRAWN_PER_SECOND = 2
_BAR_WIDTH = 12
_JUSTIFY: tuple["JustifyMethod", ...] = ("left", "right", "right")


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """Text from outside as one line for a terminal, a log or a page: cut, and without control characters.

    Whatever is not printable becomes a question mark, line ends a blank: nothing moves the cursor, changes
    the direction of writing, or starts a line of its own.
    """
    short = " ".join(text[: 4 * limit].split())
    clean = "".join(c if c.isprintable() else "?" for c in short[:limit])
    return f"{clean} [...]" if len(short) > limit or len(text) > 4 * limit else clean


def counted(number: int, noun: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def span(numbers: Collection[int]) -> str:
    """``3`` where all are 3, else the least and the greatest: ``1 to 3``."""
    return " to ".join(map(str, dict.fromkeys((min(numbers), max(numbers)))))


def listed(parts: Iterable[object]) -> str:
    """``a, b and c``, of two parts or more."""
    *most, last = map(str, parts)
    return f"{', '.join(most)} and {last}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines, every column as wide as its longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in lines]


class Progress(Protocol):
    """Where long work reports to: how many of a task's steps are done, and lines for people."""

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        """Report how far a task is.

        Args:
            task: Its name, the same in every call.
            done: How many of its steps are done.
            total: How many it has.
            note: A few words on its state.
        """

    def say(self, line: str) -> None:
        """Show a line.

        Args:
            line: Text without a line break.
        """


class PlainProgress:
    """A line when a task begins and when it ends; ``report`` prints one about all that is under way."""

    def __init__(self, work: Workload | None = None, stream: TextIO | None = None) -> None:
        """Print to ``stream``, or to what is standard output at the time."""
        self._work, self._stream = work or Workload(), stream
        self._begun: set[str] = set()

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        """Take note; print the first and the last of a task, but for what was done before."""
        self._work.update(task, done, total, note)
        first = task not in self._begun
        if first if done < total else not first or total == 1:
            self.say(f"{task}: {done}/{total} {note}".rstrip())
        self._begun.add(task)

    def say(self, line: str) -> None:
        # One write: runs side by side report from threads of their own.
        print(f"{line}\n", end="", flush=True, file=self._stream)

    def report(self) -> None:
        """Print how far everything is, if anything runs."""
        running = self._work.running
        tasks = "; ".join(f"{_short(task)} {task.done}/{task.total} {task.note}".rstrip() for task in running)
        if running:
            self.say(f"[{self._work.heading()}] {tasks}" if self._work.has_plan else tasks)


class LiveProgress:
    """A line for all the work and one per running task, redrawn in place; what finished is not drawn."""

    def __init__(self, work: Workload, console: "Console") -> None:
        self._work, self._console = work, console

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        """Take note; the next drawing shows it."""
        self._work.update(task, done, total, note)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def draw(self) -> "RenderableType":
        """The lines as they are now; the first tasks that fit where more run than the terminal has lines."""
        from rich.console import Group
        from rich.text import Text

        running = self._work.running
        room = max(self._console.height - 4, 1)
        lines: list[RenderableType] = [_rows(running[:room], self._work.clock())] if running else []
        if running[room:]:
            lines.append(Text(f"... and {len(running) - room} more"))
        if self._work.has_plan:
            lines.insert(0, _overall(self._work))
        return Group(*lines)


def _overall(work: Workload) -> "RenderableType":
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=_BAR_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_row(ProgressBar(total=1.0, completed=work.share, width=_BAR_WIDTH), work.heading())
    return table


def _rows(running: Iterable[Status], now: float) -> "RenderableType":
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=_BAR_WIDTH)
    for justify in _JUSTIFY:
        table.add_column(no_wrap=True, justify=justify)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for status in running:
        bar = ProgressBar(total=status.total, completed=status.done, width=_BAR_WIDTH)
        count, age = f"{status.done}/{status.total}", duration(now - status.since)
        table.add_row(bar, *(Text(part) for part in (_short(status), count, age, status.note)))
    return table


def _short(status: Status) -> str:
    """A task's name without its layer, which is named once for all of them."""
    return status.task.name.partition("/")[2] or status.task.name


@contextmanager
def progress_display(planned: Iterable[Task] = (), stream: TextIO | None = None) -> Iterator[Progress]:
    """Live lines on a terminal with rich, plain ones otherwise; ``planned`` is all the work, where known.

    A command whose standard output is its result gives another ``stream``, for plain lines.
    """
    work = Workload(planned)
    if stream or not (sys.stdout.isatty() and find_spec("rich")):
        plain = PlainProgress(work, stream)
        with called_every(PLAIN_SECONDS, plain.report):
            yield plain
        return
    # Loading it takes longer than most commands that draw nothing.
    from rich.console import Console
    from rich.live import Live

    console = Console()
    live = LiveProgress(work, console)
    with Live(
        console=console,
        get_renderable=live.draw,
        refresh_per_second=_REDRAWN_PER_SECOND,
        transient=True,
        vertical_overflow="crop",
    ):
        yield live


class _SlowProgress:
    """What is under way, as a line on standard error when it takes long."""

    def __init__(self, what: str) -> None:
        self._what = self._now = what
        self._start, self._next = time.monotonic(), _SLOW_SECONDS

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        """Take note; a finished task gives way to what follows it."""
        self._now = f"{task}: {done}/{total} {note}".rstrip() if done < total else self._what

    def say(self, line: str) -> None:
        print(f"s2s: {line}", file=sys.stderr, flush=True)

    def report(self) -> None:
        """Print a line after two seconds, and at twice the time of the line before."""
        passed = time.monotonic() - self._start
        if passed >= self._next:
            self.say(f"{self._now} ({duration(passed)})")
            self._next = 2 * passed


@contextmanager
def slow_progress(what: str) -> Iterator[Progress]:
    """For a command whose output is its result: says ``what`` it does, or its task, where that takes long."""
    slow = _SlowProgress(what)
    with called_every(_SLOW_SECONDS / 4, slow.report):
        yield slow
