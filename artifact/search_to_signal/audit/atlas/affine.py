"""Normalizers of the form (reward - baseline) / scale, in the precision of their framework.

A batch is summed group by group in one pass, so its speed is that of its values. Sums run through
a group in order; torch may add in another one, so results agree to rounding.
"""

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.atlas.batch import Reals, RewardBatch
from search_to_signal.audit.atlas.entry import Entry, Scale

Mask = NDArray[np.bool_]


def standardized(entry: Entry, batch: RewardBatch, values: Reals) -> Reals:
    """The first stage of an entry without a formula: (n,) -> (n,), NaN where it is undefined."""
    known = ~np.isnan(values) if entry.nan == "ignored" else None
    if known is not None and known.all():
        known = None
    filled = values if known is None else np.where(known, values, values.dtype.type(0))
    counts = (batch.sizes if known is None else batch.total(known.astype(np.int64))).astype(values.dtype)
    centred = values - batch.spread(_baseline(entry, batch, filled, counts))
    result = centred if entry.scale is None else _divided(entry.scale, batch, values, centred, counts, known)
    if entry.baseline == "others":
        result = result * batch.spread(counts / (counts - 1))
    return _with_singletons(entry, batch, values, result, counts)


def _baseline(entry: Entry, batch: RewardBatch, filled: Reals, counts: Reals) -> Reals:
    if entry.baseline == "none":
        return np.zeros_like(counts)
    if entry.baseline == "lengths":
        tokens = batch.tokens.astype(filled.dtype)
        return batch.total(tokens * filled) / batch.total(tokens)
    return batch.total(filled) / counts


def _divided(
    scale: Scale, batch: RewardBatch, values: Reals, centred: Reals, counts: Reals, known: Mask | None
) -> Reals:
    if scale.over == "batch":
        measured = values if known is None else values[known]
        spread = np.std(measured, ddof=int(scale.deviation == "sample"), dtype=values.dtype)
        return centred / (np.asarray(spread, dtype=values.dtype) + scale.epsilon)
    squares = centred * centred if known is None else np.where(known, centred * centred, 0)
    variance = batch.total(squares.astype(values.dtype)) / (counts - int(scale.deviation == "sample"))
    result: Reals = centred / batch.spread(divisor(scale, variance))
    return result


def divisor(scale: Scale, variance: Reals) -> Reals:
    """What to divide by, where epsilon stands as ``scale`` says: (N,) variances -> (N,)."""
    result: Reals
    if scale.at == "variance":
        result = np.sqrt(variance + scale.epsilon)
        return result
    if scale.at.startswith("least variance"):
        result = np.sqrt(np.maximum(variance, variance.dtype.type(scale.epsilon)))
        return result + scale.epsilon if scale.at.endswith("deviation") else result
    deviation = np.sqrt(variance)
    whole = deviation + scale.epsilon
    if scale.zero == "unscaled":
        return np.where(deviation > 0, whole, variance.dtype.type(1))
    return whole


def _with_singletons(entry: Entry, batch: RewardBatch, values: Reals, result: Reals, counts: Reals) -> Reals:
    alone = counts <= 1
    if entry.singleton == "nan" or not alone.any():
        return result
    given = np.zeros_like(values)
    if entry.singleton == "reward":
        given = values / (1.0 + entry.scale.epsilon) if entry.scale else values
    return np.where(batch.spread(alone), given, result)


def whitened(scale: Scale, batch: RewardBatch, values: Reals, ignore_nan: bool) -> Reals:
    """The stage over the whole batch: centred and scaled over sequences, or over tokens: (n,) -> (n,)."""
    weights = batch.tokens.astype(values.dtype) if scale.over == "tokens" else np.ones_like(values)
    if ignore_nan:
        weights = np.where(np.isnan(values), values.dtype.type(0), weights)
        values = np.where(weights > 0, values, np.nan)
    count = weights.sum()
    centred = values - _weighted_sum(weights, values) / count
    variance = _weighted_sum(weights, centred * centred) / (count - int(scale.deviation == "sample"))
    result: Reals = centred / divisor(scale, np.asarray([variance], dtype=values.dtype))
    return result


def _weighted_sum(weights: Reals, values: Reals) -> Reals:
    # A response without tokens takes no part, whatever it holds; a NaN that does shows.
    total: Reals = np.where(weights > 0, weights * values, values.dtype.type(0)).sum()
    return total
