"""Progress on long work: one live line per task on a terminal, plain lines everywhere else."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

PLAIN_SECONDS = 10.0
LINE_LIMIT = 1000


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """Text from outside as one line for a terminal, a log or a page: cut, and without control characters.

    Whatever is not printable becomes a question mark, line ends a blank: nothing moves the cursor, changes
    the direction of writing, or starts a line of its own.
    """
    short = " ".join(text[: 4 * limit].split())
    clean = "".join(c if c.isprintable() else "?" for c in short[:limit])
    return f"{clean} [...]" if len(short) > limit or len(text) > 4 * limit else clean


class Progress(Protocol):
    """Where long work reports to."""

    def update(self, task: str, done: int, total: int, note: str = "") -> None: ...
    def say(self, line: str) -> None: ...


class PlainProgress:
    """A line now and then, at least one at the end of every task."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        """Print when the task has said nothing for PLAIN_SECONDS, or is done."""
        now = time.monotonic()
        if done < total and now - self._last.get(task, 0.0) < PLAIN_SECONDS:
            return
        self._last[task] = now
        self.say(f"{task}: {done}/{total} {note}".rstrip())

    def say(self, line: str) -> None:
        """Print one line at once."""
        print(line, flush=True)


class LiveProgress:
    """Bars that redraw in place."""

    def __init__(self, bars: "RichProgress") -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        """Move the task's bar."""
        if task not in self._tasks:
            self._tasks[task] = self._bars.add_task(task, total=total, note=note)
        self._bars.update(self._tasks[task], completed=done, note=note)

    def say(self, line: str) -> None:
        """Print one line above the bars."""
        self._bars.console.print(line, markup=False, highlight=False)


@contextmanager
def progress_display() -> Iterator[Progress]:
    """Live bars on a terminal, plain lines otherwise."""
    if not sys.stdout.isatty():
        yield PlainProgress()
        return
    # Loading it takes longer than most commands that draw nothing.
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with RichProgress(
        *columns, TimeElapsedColumn(), TextColumn("{task.fields[note]}"), console=Console()
    ) as bars:
        yield LiveProgress(bars)
