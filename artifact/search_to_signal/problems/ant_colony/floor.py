"""What the host does to a heuristic matrix before its ants see it."""

import numpy as np
from numpy.typing import NDArray

from search_to_signal.problems.base import Array

FLOOR = 1e-9


def floored(matrix: Array) -> NDArray[np.float64]:
    """Add 1e-9 and raise what is below 1e-9 to it, in the precision of the matrix, then widen to float64.

    NaN and inf stay. In half precision 1e-9 is zero, so that zeros stay zero.
    """
    with np.errstate(all="ignore"):
        lifted = np.asarray(matrix + FLOOR)
        lifted[lifted < FLOOR] = FLOOR
    return np.array(lifted, dtype=np.float64, order="C")
