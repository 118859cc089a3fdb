"""Tables of cases as one test: every row is tried, and all that fail are named with their reasons."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from search_to_signal.base.errors import S2SError

Row = TypeVar("Row")
# Characters of a reason.
SHOWN = 300


def check_all(rows: Iterable[tuple[str, Row]], check: Callable[[Row], None]) -> None:
    """Check every named row; raises AssertionError with a line per row that fails, or where there is none."""
    failing, tried = [], 0
    for name, row in rows:
        tried += 1
        try:
            check(row)
        except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError, S2SError) as error:
            failing.append(f"{name}: {' '.join(str(error).split())[:SHOWN]}")
    assert tried, "the table has no row"
    assert not failing, "\n".join([f"{len(failing)} of {tried} rows fail", *failing])
