"""What several groups of commands print."""

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from search_to_signal.progress import one_line

if TYPE_CHECKING:
    from search_to_signal.verification.findings import Finding


def print_problems(findings: "Sequence[Finding]", say: Callable[[str], None] = print) -> None:
    """Print a line for every finding that is a problem, by ``say``."""
    for finding in findings:
        if finding.compared:
            say(f"PROBLEM {one_line(finding.line)}")


def print_result(problems: int, text: str) -> int:
    """Print the last line of a check, OK or FAILED and ``text``, and return the exit code."""
    print(f"s2s: {'FAILED' if problems else 'OK'}: {text}")
    return 1 if problems else 0


def show(page: Path) -> None:
    """Print a Markdown page, rendered on a terminal and plain elsewhere."""
    text = page.read_text(encoding="utf-8")
    if sys.stdout.isatty() and find_spec("rich"):
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        print(text)
