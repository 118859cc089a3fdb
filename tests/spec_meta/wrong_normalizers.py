"""Plausible normalizers that are not the paper's."""

import numpy as np

from search_to_signal.base.numerics import Floats
from search_to_signal.credit.normalizers import dr_grpo, group_advantages, rank, trl_float32


def _spread(rewards: Floats, ddof: int = 1) -> Floats:
    with np.errstate(all="ignore"):
        deviation: Floats = rewards.std(axis=1, ddof=ddof, keepdims=True)
    return np.nan_to_num(deviation)


def _centre(rewards: Floats) -> Floats:
    centred: Floats = rewards - rewards.mean(axis=1, keepdims=True)
    return centred


def population_deviation(rewards: Floats) -> Floats:
    """Divides by G instead of G - 1."""
    return _centre(rewards) / (_spread(rewards, ddof=0) + 1e-4)


def stabilizer_1e3(rewards: Floats) -> Floats:
    """Ten times the stabilizer."""
    return _centre(rewards) / (_spread(rewards) + 1e-3)


def stabilizer_1e5(rewards: Floats) -> Floats:
    """A tenth of the stabilizer."""
    return _centre(rewards) / (_spread(rewards) + 1e-5)


def stabilizer_in_root(rewards: Floats) -> Floats:
    """Adds the stabilizer to the variance."""
    return _centre(rewards) / np.sqrt(_spread(rewards) ** 2 + 1e-4)


def stabilizer_outside(rewards: Floats) -> Floats:
    """Adds the stabilizer to the quotient."""
    return _centre(rewards) / np.maximum(_spread(rewards), 1e-300) + 1e-4


def no_stabilizer(rewards: Floats) -> Floats:
    """Divides by the deviation alone, flat groups guarded."""
    spread = _spread(rewards)
    return np.divide(_centre(rewards), spread, out=np.zeros_like(rewards), where=spread > 0.0)


def unguarded(rewards: Floats) -> Floats:
    """Divides by zero in flat groups."""
    with np.errstate(all="ignore"):
        return _centre(rewards) / rewards.std(axis=1, ddof=1, keepdims=True)


def median_centred(rewards: Floats) -> Floats:
    """Measures from the median."""
    return (rewards - np.median(rewards, axis=1, keepdims=True)) / (_spread(rewards) + 1e-4)


def batch_deviation(rewards: Floats) -> Floats:
    """Scales by the deviation of the whole batch."""
    return _centre(rewards) / (rewards.std(ddof=1) + 1e-4)


def naive_float64(rewards: Floats) -> Floats:
    """The formula without care: a large offset leaves the rounding of its mean."""
    return _centre(rewards) / (_spread(rewards) + 1e-4)


def clipped(rewards: Floats) -> Floats:
    """Clips advantages at 2."""
    return np.clip(group_advantages(rewards), -2.0, 2.0)


def sorted_output(rewards: Floats) -> Floats:
    """Loses track of who earned what."""
    return np.sort(group_advantages(rewards), axis=1)


def min_max(rewards: Floats) -> Floats:
    """Scales to [-1, 1]."""
    low, high = rewards.min(axis=1, keepdims=True), rewards.max(axis=1, keepdims=True)
    return (2.0 * rewards - low - high) / (high - low + 1e-4)


def mean_absolute(rewards: Floats) -> Floats:
    """Scales by the mean absolute deviation."""
    centred = _centre(rewards)
    return centred / (np.abs(centred).mean(axis=1, keepdims=True) + 1e-4)


def positive_only(rewards: Floats) -> Floats:
    """Drops negative advantages."""
    return np.maximum(group_advantages(rewards), 0.0)


def unchecked(rewards: Floats) -> Floats:
    """Lets NaN and infinity through as zero."""
    return group_advantages(np.nan_to_num(np.atleast_2d(rewards).reshape(len(rewards), -1)))


WRONG = {
    population_deviation: "R-NRM-11",
    stabilizer_1e3: "R-NRM-03",
    stabilizer_1e5: "R-NRM-04",
    stabilizer_in_root: "R-NRM-11",
    stabilizer_outside: "R-NRM-01",
    no_stabilizer: "R-NRM-04",
    unguarded: "R-NRM-13",
    median_centred: "R-NRM-01",
    batch_deviation: "R-NRM-14",
    naive_float64: "R-NRM-02",
    clipped: "R-NRM-07",
    sorted_output: "R-NRM-05",
    min_max: "R-NRM-11",
    mean_absolute: "R-NRM-11",
    positive_only: "R-NRM-12",
    unchecked: "R-NRM-15",
    trl_float32: "R-NRM-10",
    dr_grpo: "R-NRM-06",
    rank: "R-NRM-11",
}
