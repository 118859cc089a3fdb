"""Options that several groups of commands share. Slow imports stand inside the commands that need them."""

import argparse
import secrets
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.progress import one_line
from search_to_signal.base.settings import Range

if TYPE_CHECKING:
    from search_to_signal.records.differences import Finding

Command = Callable[[argparse.Namespace], int | None]
"""A command returns its exit code; None is 0. Its docstring is its help, the first paragraph in the list."""
# The remedy for a full disk, for commands that cannot resume.
AGAIN = "give the command again"
_LONGEST = 1e6


class Add(Protocol):
    """Adds a command under its function's name, with an example, and returns its parser."""

    def __call__(self, command: Command, example: str) -> argparse.ArgumentParser: ...


def allow_code(parser: argparse.ArgumentParser, *kinds: str, note: str = "") -> None:
    """Add an option --KIND PKG.MOD:OBJ that allows third-party code, since records cannot allow it."""
    for kind in kinds:
        text = f"{note}your own {kind} that the runs used; its code will run"
        add_repeated(parser, f"--{kind}", text, metavar="PKG.MOD:OBJ")


def add_repeated(
    parser: argparse._ActionsContainer,
    option: str,
    text: str,
    kind: type = str,
    metavar: str | None = None,
    otherwise: str = "",
) -> None:
    """Add an option that may be repeated: a list, empty by default; ``otherwise`` describes the default."""
    meaning = f"{text}; repeat it" + (f" (default: {otherwise})" if otherwise else "")
    parser.add_argument(option, action="append", default=[], type=kind, metavar=metavar, help=meaning)


def load_allowed(arguments: argparse.Namespace) -> None:
    """Load the code that options of ``allow_code`` name; raises ConfigError for an object of another kind."""
    kinds = ("mapping", "normalizer", "problem", "host", "rule")
    allowed = [(kind, name) for kind in kinds for name in getattr(arguments, kind, ())]
    if not allowed:
        return
    from search_to_signal.credit import get_mapping
    from search_to_signal.credit.normalizers import get_normalizer
    from search_to_signal.learner import get_rule
    from search_to_signal.problems import get_problem
    from search_to_signal.search.hosts import get_host

    loaders: dict[str, Callable[[str], object]] = {
        "mapping": get_mapping,
        "normalizer": get_normalizer,
        "problem": get_problem,
        "host": get_host,
        "rule": get_rule,
    }
    for kind, name in allowed:
        loaders[kind](name)


def refuse_no_time(option: str, value: float | None, zero: bool = False) -> None:
    """Raise ConfigError for a time that none waits: nan, inf, years, below zero; or zero, unless ``zero``."""
    allowed = Range(0, _LONGEST, above=not zero)
    if value is not None and not allowed.holds(value):
        raise ConfigError(f"{option} {value:g}: give a number {allowed}")


def refuse_loose_sample(arguments: argparse.Namespace, workers: str) -> None:
    """Raise ConfigError for --seed without --sample, and for values below 1 of --sample or ``workers``."""
    if arguments.seed is not None and arguments.sample is None:
        raise ConfigError("--seed draws a sample: give --sample as well")
    if any(number is not None and number < 1 for number in (getattr(arguments, workers), arguments.sample)):
        raise ConfigError(f"--{workers} and --sample take a number of at least 1")


def sample_seed(arguments: argparse.Namespace) -> int:
    """Return the seed of --sample, a random one where none is given."""
    return secrets.randbelow(2**32) if arguments.seed is None else int(arguments.seed)


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
