"""Advantages of a batch under an entry of the atlas.

Without a formula they are (reward - baseline) / scale, in the precision and the steps of their framework.
Where rewards are close to each other and far from 0 the steps show: of which squares a deviation is made, how
a member is left out, in which order a sum is taken. ``entries.toml`` says it, and this follows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.atlas.batch import SUMS, Ints, Reals, RewardBatch, Sum
from search_to_signal.audit.atlas.entry import DeviationScale, NormalizerEntry
from search_to_signal.audit.atlas.formulas import FORMULAS
from search_to_signal.base.errors import ConfigError, IllFormedGroupError
from search_to_signal.base.numerics import Floats


@dataclass(frozen=True)
class _Given:
    """Values (n,) of a batch; ``filled`` has 0 where one is not ``known``, and ``counts`` (N,) the known."""

    batch: RewardBatch
    values: Reals
    filled: Reals
    known: NDArray[np.bool_]
    counts: Reals
    added: Sum

    def total(self, column: Reals) -> Reals:
        """Sums of a column (n,) over groups, (N,), in the order of the framework."""
        total: Reals = self.batch.total(column, self.added)
        return total

    def spread(self, numbers: Reals) -> Reals:
        """A number of each group, (N,), given to its rows, (n,)."""
        rows: Reals = self.batch.spread(numbers)
        return rows


def standardized(entry: NormalizerEntry, batch: RewardBatch, values: Reals) -> Reals:
    """The first stage of an entry without a formula: (n,) -> (n,), NaN where it is undefined."""
    ignored = entry.nan == "ignored"
    known = ~np.isnan(values) if ignored else np.ones(len(values), dtype=np.bool_)
    filled = np.where(known, values, values.dtype.type(0))
    counts = batch.total(known.astype(np.int64)).astype(values.dtype)
    given = _Given(batch, values, filled, known, counts, SUMS[entry.sums])
    if entry.baseline == "others":
        return _with_singletons(entry, given, _without_self(entry.leaving, given))
    mean = _baseline(entry, given)
    result = values - given.spread(mean)
    if entry.scale is not None:
        result = _divided(entry.scale, given, result, mean)
    return _with_singletons(entry, given, result)


def _baseline(entry: NormalizerEntry, given: _Given) -> Reals:
    if entry.baseline == "none":
        return np.zeros_like(given.counts)
    if entry.baseline == "lengths":
        tokens = given.batch.tokens.astype(given.filled.dtype)
        weighted: Reals = given.total(tokens * given.filled) / given.batch.total(tokens)
        return weighted
    return given.total(given.filled) / given.counts


def _without_self(leaving: str, given: _Given) -> Reals:
    values, total = given.values, given.total(given.filled)
    n, rest = given.spread(given.counts), given.spread(given.counts - 1)
    steps: dict[str, Any] = {
        "centred": lambda: (values - given.spread(total / given.counts)) * (n / rest),
        "subtracted": lambda: values - (given.spread(total) - values) / rest,
        "both scaled": lambda: values * n / rest - given.spread(total / given.counts) * n / rest,
        "multiplied": lambda: (n * values - given.spread(total)) / rest,
    }
    result: Reals = steps[leaving]()
    return result


def _divided(scale: DeviationScale, given: _Given, centred: Reals, mean: Reals) -> Reals:
    dtype = given.values.dtype
    if scale.over == "batch":
        known = given.values[given.known]
        whole = RewardBatch(known.astype(np.float64), np.array([0, len(known)]))
        count = np.array([len(known)], dtype=dtype)
        as_one_group = _Given(whole, known, known, np.ones(len(known), dtype=np.bool_), count, given.added)
        middle = as_one_group.total(known) / count
        spread = divisor(scale, _variance(scale, as_one_group, known - middle, middle), dtype)
        return centred / spread
    result = np.where(given.known, centred, dtype.type(0))
    return centred / given.spread(divisor(scale, _variance(scale, given, result, mean), dtype))


def _variance(scale: DeviationScale, given: _Given, centred: Reals, mean: Reals) -> Reals:
    """Of each group, (N,), from the squares that the scale says; in float64 where torch takes it so."""
    counts, less = given.counts, int(scale.deviation == "sample")
    if scale.measured == "centred":
        return given.total(centred * centred) / counts * (counts / (counts - less))
    squares = given.total(given.filled * given.filled)
    difference: Reals
    if scale.measured == "mean of squares":
        difference = squares / counts - mean * mean
        return difference * (counts / (counts - less))
    if scale.measured == "sum of squares":
        total = given.total(given.filled)
        difference = squares - total * total / counts
        return difference / (counts - less)
    rounded = scale.measured == "rounded mean" or (len(counts) == 1 and scale.measured == "one row rounded")
    wide = given.filled.astype(np.float64)
    around = mean.astype(np.float64) if rounded else given.batch.total(wide) / given.counts
    apart = wide - given.spread(around)
    squares = given.batch.total(apart * apart)
    return squares / (counts - less)


def divisor(scale: DeviationScale, variance: Reals, dtype: "np.dtype[Any]") -> Reals:
    """What to divide by, where epsilon stands as ``scale`` says: (N,) variances -> (N,)."""
    if scale.at == "variance":
        variance = variance + scale.epsilon
    elif scale.at.startswith("least variance"):
        variance = np.maximum(variance, variance.dtype.type(scale.epsilon))
    deviation: Reals = np.sqrt(variance).astype(dtype)
    result = deviation + scale.epsilon if scale.at.endswith("deviation") else deviation
    if scale.zero == "unscaled":
        # Where squares cancel, rounding can leave a variance below 0: it counts as none.
        return np.where(deviation > 0, result, np.ones_like(result))
    return result


def _with_singletons(entry: NormalizerEntry, given: _Given, result: Reals) -> Reals:
    alone: NDArray[np.bool_] = given.counts <= 1
    if entry.singleton == "nan" or not alone.any():
        return result
    lone = np.zeros_like(given.values)
    if entry.singleton == "reward":
        lone = given.values / (1.0 + entry.scale.epsilon) if entry.scale else given.values
    chosen: Reals = np.where(given.batch.spread(alone), lone, result)
    return chosen


def whitened(entry: NormalizerEntry, scale: DeviationScale, values: Reals, tokens: Ints | None) -> Reals:
    """The stage over whole batches, a row each: centred and scaled over sequences, or over the tokens (S, n)
    where they are given: (S, n) -> (S, n)."""
    weights = np.ones_like(values) if tokens is None else tokens.astype(values.dtype)
    if entry.nan == "ignored":
        weights = np.where(np.isnan(values), values.dtype.type(0), weights)
        values = np.where(weights > 0, values, np.nan)
    count, added = weights.sum(axis=1), SUMS[entry.sums]
    every = count + values.dtype.type(scale.more)
    mean = _weighted_sum(weights, values, added) / every
    # A factor near 1 would lose digits in the precision of the values.
    bessel = count / (count.astype(np.float64) - int(scale.deviation == "sample"))
    centred = values - mean[:, None]
    if scale.measured == "mean of squares":
        spread = _weighted_sum(weights, values * values, added) / every - mean * mean
    elif scale.measured == "rounded mean":
        wide = values.astype(np.float64) - mean.astype(np.float64)[:, None]
        spread = _weighted_sum(weights.astype(np.float64), wide * wide, added) / every
    else:
        spread = _weighted_sum(weights, centred * centred, added) / every
    shifted: Reals = centred if scale.shift else values
    return shifted / divisor(scale, spread * bessel, values.dtype)[:, None]


def _weighted_sum(weights: Reals, values: Reals, added: Sum) -> Reals:
    # A response without tokens takes no part, whatever it holds; a NaN that does shows.
    used: Reals = np.where(weights > 0, weights * values, values.dtype.type(0))
    return added(used)


def advantages(
    entry: NormalizerEntry, batch: RewardBatch, dtype: str | None = None, starts: Ints | None = None
) -> Floats:
    """What the entry's framework gives each response, (n,) in float64; NaN where it gives NaN.

    ``dtype`` is the precision that the steps are taken in: the framework's own unless given. It agrees with
    the framework's code on a CPU to a few roundings in that precision; a matrix product or a sum over padded
    tokens has no order of its own, so there another order's answer may come out. ``starts`` (S+1,) are the
    first rows of parts that are whitened each by itself, then n; without them the batch is one part. Raises
    IllFormedGroupError for a batch that the framework refuses, or that lacks lengths the entry weighs by.
    """
    refused = {
        "groups of several sizes": entry.uneven == "refused" and not batch.is_even,
        "a group of one": entry.singleton == "refused" and bool((batch.sizes == 1).any()),
        "a NaN reward": entry.nan == "refused" and bool(np.isnan(batch.rewards).any()),
    }
    reasons = [what for what, is_so in refused.items() if is_so]
    if reasons:
        raise IllFormedGroupError(
            f"{entry.name} cannot take {' and '.join(reasons)}: leave these out, or use another entry"
        )
    layout = batch if batch.is_even or entry.uneven != "whole batch" else batch.merged()
    # Frameworks divide by zero and go on; so does the atlas, and shows what they get.
    with np.errstate(all="ignore"):
        result = _first_stage(entry, layout, dtype or entry.dtype)
        if entry.whiten is not None:
            result = _whitened(entry, entry.whiten, layout, result, starts)
    if entry.nan == "ignored":
        result = np.nan_to_num(result, nan=0.0)
    return result.astype(np.float64)


def _first_stage(entry: NormalizerEntry, batch: RewardBatch, dtype: str) -> Reals:
    """The stage within groups, of the reward or, weighted and summed, of each of its components."""
    if not entry.components or not batch.components:
        return _of_groups(entry, batch, batch.rewards.astype(dtype))
    total = np.zeros(len(batch.rewards), dtype=dtype)
    unscored = np.ones(len(total), dtype=np.bool_)
    for name, part in batch.components.items():
        given = _of_groups(entry, batch, part.astype(dtype))
        # A component that is NaN is left out of the sum.
        kept = np.where(np.isnan(given), 0, given) if entry.nan in ("ignored", "as zero") else given
        total += batch.component_weights.get(name, 1.0) * kept
        unscored &= np.isnan(part)
    return np.where(unscored, np.nan, total) if entry.nan == "ignored" else total


def _whitened(
    entry: NormalizerEntry, scale: DeviationScale, batch: RewardBatch, values: Reals, starts: Ints | None
) -> Reals:
    tokens = batch.tokens if scale.over == "tokens" else None
    starts = batch.offsets[[0, -1]] if starts is None else starts
    sizes = np.diff(starts)
    result = np.empty_like(values)
    for size in np.unique(sizes):
        rows = starts[:-1][sizes == size, None] + np.arange(size)
        result[rows] = whitened(entry, scale, values[rows], None if tokens is None else tokens[rows])
    return result


def _of_groups(entry: NormalizerEntry, batch: RewardBatch, values: Reals) -> Reals:
    if entry.nan == "as zero":
        values = np.nan_to_num(values)
    if not entry.formula:
        return standardized(entry, batch, values)
    if entry.formula not in FORMULAS:
        raise ConfigError(f"entry {entry.name} names no formula: {entry.formula!r}")
    return FORMULAS[entry.formula](batch, values, entry.options)
