"""Tables of cases as one test: every row is tried, and all that fail are named with their reasons."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from search_to_signal.errors import S2SError

Row = TypeVar("Row")


def failing(rows: Iterable[tuple[str, Row]], check: Callable[[Row], None]) -> list[str]:
    """A line per named row whose check raises; a table without rows fails too."""
    found, tried = [], 0
    for name, row in rows:
        tried += 1
        try:
            check(row)
        except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError, S2SError) as error:
            found.append(f"{name}: {error}")
    return found if tried else ["there is no row"]
