"""Numbers that another processor rounds otherwise."""

import math
from collections.abc import Sequence

TOLERANCE = 1e-12


def agree(recorded: Sequence[float | None], due: Sequence[float | None]) -> bool:
    """Whether numbers are those that are due, up to the last digits (``TOLERANCE``); None is None alone.

    Exponentials and sums of numpy differ in last bits between processors whose kernels were not fixed (D46).
    """
    if list(recorded) == list(due):
        return True
    pairs = zip(recorded, due, strict=False)
    return len(recorded) == len(due) and all(a == b or _close(a, b) for a, b in pairs)


def _close(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
