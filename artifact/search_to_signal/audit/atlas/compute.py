"""Advantages of a batch under an entry of the atlas.

Without a formula they are (reward - baseline) / scale, in the precision and the steps of their framework.
Where rewards are close to each other and far from 0 the steps show: of which squares a deviation is made, how
a member is left out, in which order a sum is taken. ``entries.toml`` says it, and this follows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.atlas import (
    SUMS,
    DeviationScale,
    Ints,
    NormalizerEntry,
    Reals,
    RewardBatch,
    Sum,
    blocked,
)
from search_to_signal.base.errors import ConfigError, IllFormedGroupError
from search_to_signal.base.numerics import Floats
from search_to_signal.credit import normalizers


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


def standardized(entry: NormalizerEntry, batch: RewardBatch, values: Reals, starts: Ints) -> Reals:
    """The first stage of an entry without a formula: (n,) -> (n,), NaN where it is undefined.

    ``starts`` (S+1,) as in ``advantages``, of parts that have each a deviation of its own.
    """
    ignored = entry.nan == "ignored"
    known = ~np.isnan(values) if ignored else np.ones(len(values), dtype=np.bool_)
    filled, counts = values, batch.sizes
    if not known.all():
        filled = np.where(known, values, values.dtype.type(0))
        counts = batch.total(known.astype(np.int64))
    given = _Given(batch, values, filled, known, counts.astype(values.dtype), SUMS[entry.sums])
    if entry.baseline == "others":
        return _with_singletons(entry, given, _without_self(entry.leaving, given))
    mean = _baseline(entry, given)
    result = values - given.spread(mean)
    if entry.scale is not None:
        result = _divided(entry.scale, given, result, mean, starts)
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


def _divided(scale: DeviationScale, given: _Given, centred: Reals, mean: Reals, starts: Ints) -> Reals:
    dtype = given.values.dtype
    if scale.over == "batch":
        known = given.values[given.known]
        counts = np.add.reduceat(given.known.astype(np.int64), starts[:-1])
        parts = RewardBatch(known.astype(np.float64), np.append(0, np.cumsum(counts)))
        everything = np.ones(len(known), dtype=np.bool_)
        as_groups = _Given(parts, known, known, everything, counts.astype(dtype), given.added)
        middle = as_groups.total(known) / as_groups.counts
        spread = divisor(scale, _variance(scale, as_groups, known - as_groups.spread(middle), middle), dtype)
        return centred / np.repeat(spread, np.diff(starts))
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
    first rows of parts, then n, each of which is whitened, and has a deviation of its batch, by itself;
    without them the batch is one part. Raises IllFormedGroupError for a batch that the framework refuses, or
    that lacks lengths the entry weighs by.
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
    starts = layout.offsets[[0, -1]] if starts is None else starts
    # Frameworks divide by zero and go on; so does the atlas, and shows what they get.
    with np.errstate(all="ignore"):
        result = _first_stage(entry, layout, dtype or entry.dtype, starts)
        if entry.whiten is not None:
            result = _whitened(entry, entry.whiten, layout, result, starts)
    if entry.nan == "ignored":
        result = np.nan_to_num(result, nan=0.0)
    return result.astype(np.float64)


def _first_stage(entry: NormalizerEntry, batch: RewardBatch, dtype: str, starts: Ints) -> Reals:
    """The stage within groups, of the reward or, weighted and summed, of each of its components."""
    if not entry.components or not batch.components:
        return _of_groups(entry, batch, batch.rewards.astype(dtype), starts)
    total = np.zeros(len(batch.rewards), dtype=dtype)
    unscored = np.ones(len(total), dtype=np.bool_)
    for name, part in batch.components.items():
        given = _of_groups(entry, batch, part.astype(dtype), starts)
        # A component that is NaN is left out of the sum.
        kept = np.where(np.isnan(given), 0, given) if entry.nan in ("ignored", "as zero") else given
        total += batch.component_weights.get(name, 1.0) * kept
        unscored &= np.isnan(part)
    return np.where(unscored, np.nan, total) if entry.nan == "ignored" else total


def _whitened(
    entry: NormalizerEntry, scale: DeviationScale, batch: RewardBatch, values: Reals, starts: Ints
) -> Reals:
    tokens = batch.tokens if scale.over == "tokens" else None
    sizes = np.diff(starts)
    result = np.empty_like(values)
    for size in np.unique(sizes):
        rows = starts[:-1][sizes == size, None] + np.arange(size)
        result[rows] = whitened(entry, scale, values[rows], None if tokens is None else tokens[rows])
    return result


def _of_groups(entry: NormalizerEntry, batch: RewardBatch, values: Reals, starts: Ints) -> Reals:
    if entry.nan == "as zero":
        values = np.nan_to_num(values)
    if not entry.formula:
        return standardized(entry, batch, values, starts)
    if entry.formula not in FORMULAS:
        raise ConfigError(f"entry {entry.name} names no formula: {entry.formula!r}")
    return FORMULAS[entry.formula](batch, values, entry.options)


# Normalizers that are no quotient of a centred reward and a deviation. Each maps (n,) rewards to (n,);
# entries.toml names the function of the framework that each follows.


Options = Mapping[str, float]
Formula = Callable[[RewardBatch, Reals, Options], Reals]
Rule = Callable[[Reals, Options], Reals]

_BISECTIONS = 60
_AT_ONCE = 4096


def rowwise(rule: Rule) -> Formula:
    """A formula from a rule on groups of one size, (N, G) -> (N, G)."""

    def formula(batch: RewardBatch, values: Reals, options: Options) -> Reals:
        return batch.by_size(values, lambda rows: np.asarray(rule(rows, options), dtype=rows.dtype))

    return formula


def maxrl(batch: RewardBatch, values: Reals, options: Options) -> Reals:
    """(r - mean) / (mean + epsilon); with ``guarded``, 0 where the mean is not positive.

    ``singleton_mean`` is what the mean of a singleton counts as, its own unless given.
    """
    mean = batch.total(values, blocked) / batch.sizes.astype(values.dtype)
    if "singleton_mean" in options:
        mean = np.where(batch.sizes == 1, values.dtype.type(options["singleton_mean"]), mean)
    divisor = mean + options["epsilon"]
    if options.get("singleton_unscaled", 0.0):
        divisor = np.where(batch.sizes == 1, values.dtype.type(1), divisor)
    result: Reals = (values - batch.spread(mean)) / batch.spread(divisor)
    if options.get("guarded", 0.0):
        # A NaN mean is not below zero, so it shows.
        return np.where(batch.spread(mean <= 0), values.dtype.type(0), result)
    return result


def gpg(batch: RewardBatch, values: Reals, options: Options) -> Reals:
    """(r - mean) times the number of responses over the number of rewards that are not 0."""
    mean = batch.total(values, blocked) / batch.sizes.astype(values.dtype)
    mean = np.where(batch.sizes == 1, values.dtype.type(0), mean)
    factor = len(values) / max(int(np.count_nonzero(values)), 1)
    result: Reals = (values - batch.spread(mean)) * values.dtype.type(factor)
    return result


def leave_one_out(rows: Reals, options: Options) -> Reals:
    """(r - mean of the others) / (their sample deviation + epsilon), undivided where that deviation is 0.

    The variance is the mean of squares less the square of the mean, which cancels where rewards are close to
    each other and far from 0; where it comes out negative, the deviation counts as 0.
    """
    size = rows.shape[1]
    if size == 1:
        return np.zeros_like(rows)
    # The framework multiplies by a matrix of 0 and 1, and 0 times an infinity is NaN.
    mean, square = ((_of_others(part) + 0 * part) / rows.dtype.type(size - 1) for part in (rows, rows * rows))
    bessel = np.divide(rows.dtype.type(size - 1), rows.dtype.type(size - 2))
    deviation = np.nan_to_num(np.sqrt((square - mean * mean) * bessel), nan=0.0)
    divisor = np.where(deviation > 0, deviation + options["epsilon"], 1)
    return (rows - mean) / divisor.astype(rows.dtype)


def _of_others(rows: Reals) -> Reals:
    """Sum of the other members of the group, without subtracting: (N, G) -> (N, G)."""
    before, after = np.zeros_like(rows), np.zeros_like(rows)
    np.cumsum(rows[:, :-1], axis=1, out=before[:, 1:])
    after[:, :-1] = np.cumsum(rows[:, :0:-1], axis=1)[:, ::-1]
    return before + after


def best_of_group(rows: Reals, options: Options) -> Reals:
    """The best response alone: (best - second) / (sample deviation + epsilon); of tied ones the first.

    A group of one raises IllFormedGroupError, as the framework does.
    """
    if rows.shape[1] < 2:
        raise IllFormedGroupError(
            "a group of one has no second best: this entry takes groups of two and more"
        )
    ordered = np.sort(rows, axis=1)
    # Sorting puts NaN last, as the framework's choice of the greatest does.
    gain = (ordered[:, -1] - ordered[:, -2]) / (_deviation(rows) + options["epsilon"])
    result = np.zeros_like(rows)
    result[np.arange(len(rows)), rows.argmax(axis=1)] = gain
    return result


def passk_training(rows: Reals, options: Options) -> Reals:
    """Pass@k training, for rewards 0 and 1; any other reward is handed on as the advantage."""
    size, k, epsilon = rows.shape[1], int(options["k"]), options["epsilon"]
    right = (rows == 1).sum(axis=1)
    with np.errstate(all="ignore"):
        passed = 1.0 - _shares(size, k)
        sigma = np.sqrt(passed * (1.0 - passed)) + epsilon
        wrong_fails = np.append(_shares(size - 1, k - 1), 0.0)
        gains = np.stack([(1.0 - passed - wrong_fails) / sigma, (1.0 - passed) / sigma])
    result = np.where(rows == 1, gains[1][right][:, None], rows)
    return np.where(result == 0, gains[0][right][:, None], result)


def _shares(size: int, k: int) -> Reals:
    """C(size - c, k) / C(size, k) for c from 0 to size; NaN where a group is smaller than k."""
    total = comb(size, k)
    return np.array([comb(size - c, k) / total if total else np.nan for c in range(size + 1)])


def pkpo_binary(rows: Reals, options: Options) -> Reals:
    """Pass@k policy optimization of rounded rewards: a right answer's share, less that of the others.

    NaN for a group smaller than k.
    """
    if np.isnan(rows).any():
        raise IllFormedGroupError("a reward is NaN: this entry counts right answers, and cannot count that")
    if np.isinf(rows).any():
        raise IllFormedGroupError(
            "a reward is infinite: this entry counts right answers, and cannot count that"
        )
    size, k = rows.shape[1], int(options["k"])
    right = np.round(rows)
    total = comb(size - 1, k - 1)
    # Rewards other than 0 and 1 are counted too, so a count may be below 0 or above the size.
    wrong = [max(size - int(count), 0) for count in right.sum(axis=1)]
    others = np.array([comb(failures, k - 1) / total if total else np.nan for failures in wrong])
    share: Reals = others[:, None] * right
    # A right singleton has nobody whose share to take off.
    if size > 1:
        share = (share * size - share.sum(axis=1, keepdims=True)) / (size - 1)
    return share


def pkpo_max(rows: Reals, options: Options) -> Reals:
    """Mean over all sets of k that hold i of what i adds to their maximum, times k / G (PKPO, eq. 33)."""
    size, k = rows.shape[1], int(options["k"])
    if size < k:
        raise IllFormedGroupError(f"a group of {size} has no {k} members: choose a smaller k")
    ranks = np.argsort(rows, axis=1, kind="stable")
    shift = np.take_along_axis(rows, ranks[:, :1], axis=1)
    ordered = np.take_along_axis(rows, ranks, axis=1) - (shift if k > 1 else 0)
    # The member at place j is second best of C(j, k - 2) sets with a given better one.
    sets = np.array([comb(j, k - 2) if k > 1 else 0 for j in range(size)], dtype=rows.dtype)
    below, best = np.cumsum(sets) - sets, np.cumsum(sets * ordered, axis=1) - sets * ordered
    gain = (ordered if k == 1 else ordered * below - best) / comb(size, k)
    result = np.empty_like(rows)
    np.put_along_axis(result, ranks, gain, axis=1)
    return result


def entropic(rows: Reals, options: Options) -> Reals:
    """e_i / (mean of the other e_j + epsilon) - 1, e = exp(beta (r - max r)).

    With ``target``, beta is bisected per group until KL(softmax(beta r) || uniform) is the target, and stays
    at ``largest`` where that is not reached; else it is ``beta``.
    """
    size = rows.shape[1]
    gap = rows - rows.max(axis=1, keepdims=True)
    beta: Any = options["beta"] if "beta" in options else _betas(gap, options)
    weight = np.exp(beta * gap)
    # A singleton is compared with itself.
    others = (blocked(weight)[:, None] - weight) / rows.dtype.type(size - 1) if size > 1 else weight
    result: Reals = weight / (others + options["epsilon"]) - 1
    return result


def _betas(gap: Reals, options: Options) -> Reals:
    """(N, G) -> (N, 1), so many groups at a time as a processor's cache holds."""
    parts = [gap[start : start + _AT_ONCE] for start in range(0, len(gap), _AT_ONCE)]
    return np.concatenate([_beta(part, options["target"], options["largest"]) for part in parts])


def _beta(gap: Reals, target: float, largest: float) -> Reals:
    """(N, G) -> (N, 1): halved in float64, tried in the precision of the rewards."""
    beta, rows = np.ones(len(gap)), np.arange(len(gap))
    while len(rows := rows[(beta[rows] < largest) & (_divergence(gap[rows], beta[rows]) < target)]):
        beta[rows] *= 2
    solvable = ~(_divergence(gap, beta) < target)
    low, high, gap = np.zeros(np.count_nonzero(solvable)), beta[solvable], gap[solvable]
    for _ in range(_BISECTIONS):
        # What lies between two neighbours is rounded to one of them, which was tried.
        if (np.nextafter(low.astype(gap.dtype), gap.dtype.type(np.inf)) >= high.astype(gap.dtype)).all():
            break
        middle = (low + high) / 2
        below = _divergence(gap, middle) < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    beta[solvable] = high
    return beta.astype(gap.dtype)[:, None]


def _divergence(gap: Reals, beta: Floats) -> Floats:
    """KL(softmax(beta gap) || uniform): (N, G) and (N,) -> (N,)."""
    logits = beta.astype(gap.dtype)[:, None] * gap
    log_share = logits - np.log(blocked(np.exp(logits)))[:, None]
    whole = np.exp(log_share) * (log_share + np.log(gap.dtype.type(gap.shape[1])))
    return blocked(whole).astype(np.float64)


def risk_seeking(rows: Reals, options: Options) -> Reals:
    """(exp(beta (r - m)) - 1) / beta, with m = log(mean exp(beta r)) / beta, 0 for a singleton."""
    beta = rows.dtype.type(options["beta"])
    soft = np.zeros_like(rows[:, :1])
    if rows.shape[1] > 1:
        top = beta * rows.max(axis=1, keepdims=True)
        # An infinite maximum is not taken off, as in torch.logsumexp.
        top = np.where(np.isinf(top), rows.dtype.type(0), top)
        whole = top + np.log(blocked(np.exp(beta * rows - top)))[:, None]
        soft = (whole - np.log(rows.dtype.type(rows.shape[1]))) / beta
    result: Reals = (np.exp(beta * (rows - soft)) - 1) / beta
    return result


def rvar(rows: Reals, options: Options) -> Reals:
    """Rewards cut off at two quantiles, from -1 to 0, over the sample deviation (RiskPO)."""
    if rows.shape[1] == 1:
        return np.where(np.isnan(rows), rows, 0)
    low, high = (_quantile(rows, options[name]) for name in ("low", "high"))
    cut = np.maximum(rows - low, 0) - np.maximum(rows - high, 0) + low - high
    result: Reals = cut / (high - low + options["epsilon"]) / (_deviation(rows)[:, None] + options["epsilon"])
    return result


def _quantile(rows: Reals, share: float) -> Reals:
    """As torch.quantile: (N, G) -> (N, 1), between neighbours, from the nearer of them; NaN where one is."""
    ordered = np.sort(rows, axis=1)
    rank = rows.dtype.type(share) * rows.dtype.type(rows.shape[1] - 1)
    first = int(np.floor(rank))
    weight = rank - rows.dtype.type(first)
    low, high = ordered[:, first], ordered[:, min(first + 1, rows.shape[1] - 1)]
    between = low + weight * (high - low) if weight < 0.5 else high - (high - low) * (1 - weight)
    quantile: Reals = np.where(np.isnan(ordered[:, -1]), ordered[:, -1], between)
    return quantile[:, None].astype(rows.dtype)


def _deviation(rows: Reals) -> Reals:
    """As torch.std of one row: (N, G) -> (N,), in float64 around the mean as it was rounded."""
    mean = blocked(rows) / rows.dtype.type(rows.shape[1])
    apart = rows.astype(np.float64) - mean.astype(np.float64)[:, None]
    deviation: Reals = np.sqrt((apart * apart).sum(axis=1) / (rows.shape[1] - 1)).astype(rows.dtype)
    return deviation


def _ours(name: str, batch: RewardBatch, values: Reals, options: Options) -> Reals:
    rule = normalizers.NORMALIZERS[name]
    if not isinstance(rule, normalizers.BatchScaled):
        return batch.by_size(
            values, lambda rows: np.asarray(rule(rows.astype(np.float64)), dtype=values.dtype)
        )
    # Consecutive groups share a scale, so they are handed over together; the entry refuses uneven ones.
    return np.asarray(rule(values.astype(np.float64).reshape(len(batch.sizes), -1))).ravel()


FORMULAS: Mapping[str, Formula] = {
    "maxrl": maxrl,
    "gpg": gpg,
    "leave_one_out": rowwise(leave_one_out),
    "best_of_group": rowwise(best_of_group),
    "passk_training": rowwise(passk_training),
    "pkpo_binary": rowwise(pkpo_binary),
    "pkpo_max": rowwise(pkpo_max),
    "entropic": rowwise(entropic),
    "risk_seeking": rowwise(risk_seeking),
    "rvar": rowwise(rvar),
    **{f"normalizer.{name}": partial(_ours, name) for name in normalizers.NORMALIZERS},
}
