"""Progress on long work: a few live lines on a terminal, a plain line every half minute everywhere else."""

import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, TextIO

from search_to_signal.runtime import called_every
from search_to_signal.workload import Status, Task, Workload, duration

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, RenderableType
    from rich.live import Live

PLAIN_SECONDS = 30.0
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


def _live(progress: LiveProgress, console: "Console") -> "Live":
    from rich.live import Live

    return Live(
        console=console,
        get_renderable=progress.draw,
        refresh_per_second=_REDRAWN_PER_SECOND,
        transient=True,
        vertical_overflow="crop",
    )


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

    console = Console()
    live = LiveProgress(work, console)
    with _live(live, console):
        yield live
