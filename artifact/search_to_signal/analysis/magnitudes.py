"""Maximum, mean and median of a stream of magnitudes in fixed memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_to_signal.numerics import Floats

EXACT = 8192
# The leading 8 mantissa bits and the exponent of a float64 number its bin: 0.4 % wide, from 2^-60 to 2^44.
_SHIFT = 44
_LOWEST = int(np.float64(2.0**-60).view(np.int64)) >> _SHIFT
_BINS = (60 + 44) * 256


@dataclass(frozen=True)
class Magnitudes:
    """Summary of non-negative numbers; two summaries add.

    Up to 8192 numbers are kept, so their median is exact; beyond that it is good to 0.2 %. Numbers
    below 2^-60 count as zero there.
    """

    number: int
    total: float
    largest: float
    kept: Floats | None
    bins: NDArray[np.int64]

    @staticmethod
    def of(values: Floats) -> "Magnitudes":
        """Summarize (N,) finite non-negative numbers."""
        keys = (np.ascontiguousarray(values).view(np.int64) >> _SHIFT) - _LOWEST + 1
        bins = np.bincount(np.clip(keys, 0, _BINS), minlength=_BINS + 1)
        largest = float(values.max(initial=0.0))
        kept = values if len(values) <= EXACT else None
        return Magnitudes(len(values), float(values.sum()), largest, kept, bins)

    def __add__(self, other: "Magnitudes") -> "Magnitudes":
        small = self.number + other.number <= EXACT and self.kept is not None and other.kept is not None
        return Magnitudes(
            self.number + other.number,
            self.total + other.total,
            max(self.largest, other.largest),
            np.concatenate([self.kept, other.kept]) if small else None,
            self.bins + other.bins,
        )

    @property
    def mean(self) -> float | None:
        """Arithmetic mean, None of nothing."""
        return self.total / self.number if self.number else None

    @property
    def median(self) -> float | None:
        """Median, None of nothing."""
        if not self.number:
            return None
        if self.kept is not None:
            return float(np.median(self.kept))
        bin_of = np.searchsorted(np.cumsum(self.bins), (self.number + 1) // 2)
        if bin_of == 0:
            return 0.0
        edges = (np.array([bin_of - 1, bin_of]) + _LOWEST) << _SHIFT
        return float(edges.view(np.float64).mean())
