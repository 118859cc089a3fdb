"""Advantages of a batch under an entry of the atlas."""

import numpy as np

from search_to_signal.audit.atlas.affine import standardized, whitened
from search_to_signal.audit.atlas.batch import Ints, Reals, RewardBatch
from search_to_signal.audit.atlas.entry import DeviationScale, NormalizerEntry
from search_to_signal.audit.atlas.formulas import FORMULAS
from search_to_signal.errors import ConfigError, IllFormedGroupError
from search_to_signal.numerics import Floats


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
    _check(entry, batch)
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


def _check(entry: NormalizerEntry, batch: RewardBatch) -> None:
    refused = {
        "groups of several sizes": entry.uneven == "refused" and not batch.is_even,
        "a group of one": entry.singleton == "refused" and bool((batch.sizes == 1).any()),
        "a NaN reward": entry.nan == "refused" and bool(np.isnan(batch.rewards).any()),
    }
    reasons = [what for what, is_so in refused.items() if is_so]
    if reasons:
        raise IllFormedGroupError(
            f"{entry.name} refuses {' and '.join(reasons)}: leave these out, or use another"
        )
