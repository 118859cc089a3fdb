"""What every group of commands shares. What loads slowly is imported inside its command."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

Command = Callable[[argparse.Namespace], int]


class Add(Protocol):
    """Adds a command with its help text and an example; returns its parser."""

    def __call__(self, name: str, command: Command, text: str, example: str) -> argparse.ArgumentParser: ...


def show(page: Path) -> None:
    """Print a Markdown page, drawn on a terminal and plain elsewhere."""
    text = page.read_text(encoding="utf-8")
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        print(text)
