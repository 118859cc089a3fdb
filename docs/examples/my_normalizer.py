"""A normalizer: distance from the median of the group, in units of its median distance."""

import numpy as np

from search_to_signal.base.numerics import Floats


def median_scaled(rewards: Floats) -> Floats:
    """A = (r - median) / (median |r - median| + 1e-4) for N groups of G, (N, G); a group of one gets 0."""
    centred = rewards - np.median(rewards, axis=1, keepdims=True)
    spread = np.median(np.abs(centred), axis=1, keepdims=True)
    result: Floats = centred / (spread + 1e-4)
    return result
