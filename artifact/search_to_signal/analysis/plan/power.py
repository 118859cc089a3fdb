"""The smallest effects that a paired t test can detect with a number of seeds.

Two-sided over seeds: the smallest mean difference d with P(|T| > t*) = power, T noncentral t with n - 1
degrees of freedom and noncentrality d sqrt(n) / s, s the deviation of the difference over seeds.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import nct, t


def power(effect: float, deviation: float, seeds: int, alpha: float) -> float:
    """Return the probability that a paired t test over ``seeds`` detects a true mean difference."""
    freedom, shift = seeds - 1, effect * math.sqrt(seeds) / deviation
    edge = t.ppf(1 - alpha / 2, freedom)
    # Far from zero the other tail vanishes, and scipy returns NaN for it.
    return float(nct.sf(edge, freedom, shift) + np.nan_to_num(nct.cdf(-edge, freedom, shift)))


def smallest_effect(deviation: float, seeds: int, alpha: float, wanted: float) -> float:
    """Return the smallest mean difference that the test detects with the wanted power.

    The unit is that of ``deviation``.
    """

    def missing(size: float) -> float:
        return power(size * deviation, deviation, seeds, alpha) - wanted

    most = 5.0
    while missing(most) < 0.0:
        most *= 2.0
    return deviation * float(brentq(missing, 1e-6, most))
