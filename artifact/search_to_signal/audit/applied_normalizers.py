"""Entries of the atlas applied to logged groups, step by step where they look at a whole step."""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.atlas import NormalizerEntry, RewardBatch, advantages
from search_to_signal.audit.groups import Floats, Integers, RewardGroups, of_arrays
from search_to_signal.audit.steps import spans
from search_to_signal.errors import IllFormedGroupError

_OURS = "ours"  # the source of this project's own entries


@dataclass(frozen=True)
class StepBatches:
    """Groups in the form that the atlas takes, made once for all entries: all at once, and step by step.

    ``reward`` (R,) and ``parts`` may stand in for the logged reward and components.
    """

    groups: RewardGroups
    reward: Floats
    parts: Mapping[str, Floats]

    @cached_property
    def whole(self) -> RewardBatch:
        """Every group."""
        return self._batch(0, len(self.groups.step))

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """(R,): rows that take part in their group. What a trainer left out may have no reward at all."""
        taken: NDArray[np.bool_] = ~(self.groups.masked & np.isnan(self.reward))
        return taken

    @cached_property
    def without(self) -> "StepBatches":
        """The same groups of the rows that are counted."""
        rows, groups = self.counted, self.groups
        sizes = np.add.reduceat(rows.astype(np.int64), groups.offsets[:-1])
        parts = {name: values[rows] for name, values in self.parts.items()}
        kept = of_arrays(
            self.reward[rows],
            sizes[sizes > 0],
            groups.source,
            parts,
            groups.weights,
            step=groups.step[sizes > 0],
            tokens=groups.tokens[rows],
        )
        return StepBatches(kept, kept.reward, kept.components)

    @cached_property
    def steps(self) -> list[tuple[slice, RewardBatch]]:
        """The rows of each step, and its groups."""
        offsets = self.groups.offsets.tolist()
        return [
            (slice(offsets[first], offsets[end]), self._batch(first, end))
            for first, end in spans(self.groups)
        ]

    @cached_property
    def starts(self) -> Integers:
        """(S+1,): the first row of each step, then R."""
        return np.array([*(rows.start for rows, _ in self.steps), len(self.reward)], dtype=np.int64)

    def _batch(self, first: int, end: int) -> RewardBatch:
        """The groups from the first to before the end."""
        offsets = self.groups.offsets[first : end + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        tokens = self.groups.tokens[rows]
        return RewardBatch(
            self.reward[rows],
            offsets - offsets[0],
            tokens if (tokens >= 0).all() else None,
            {name: values[rows] for name, values in self.parts.items()},
            self.groups.weights,
        )


def step_batches(groups: RewardGroups) -> StepBatches:
    """Logged groups as the atlas takes them."""
    return StepBatches(groups, groups.reward, groups.components)


def apply(entry: NormalizerEntry, batches: StepBatches) -> Floats:
    """Advantages (R,) of whole steps; NaN where the entry refuses a step or gives NaN, and for what a trainer
    left out without a reward."""
    if not batches.counted.all():
        result = np.full(len(batches.reward), np.nan)
        if batches.counted.any():
            result[batches.counted] = apply(entry, batches.without)
        return result
    if _needs_tokens(entry) and (batches.groups.tokens < 0).all():
        return np.full(len(batches.reward), np.nan)
    together = (entry.scope == "group" or _groups_first(entry, batches)) and (
        entry.uneven == "by group" or batches.whole.is_even
    )
    with warnings.catch_warnings():
        # A deviation of one number is NaN in the framework too, and is counted as that.
        warnings.simplefilter("ignore", RuntimeWarning)
        if together:
            try:
                return _advantages(entry, batches.whole, batches.starts)
            except IllFormedGroupError:
                pass
        result = np.full(len(batches.reward), np.nan)
        for rows, batch in batches.steps:
            with suppress(IllFormedGroupError):
                result[rows] = _of_step(entry, batch)
    return result


def _of_step(entry: NormalizerEntry, batch: RewardBatch) -> Floats:
    """Advantages of a step. Ours takes a group at a time, so it refuses one that lacks a reward, no other."""
    parts = batch.components.values() if entry.components else ()
    scored = np.logical_and.reduce([np.isfinite(values) for values in (batch.rewards, *parts)])
    whole = np.logical_and.reduceat(scored, batch.offsets[:-1])
    if entry.source != _OURS or entry.scope != "group" or whole.all() or not whole.any():
        return _advantages(entry, batch)
    rows = np.repeat(whole, batch.sizes)
    kept = RewardBatch(
        batch.rewards[rows],
        np.concatenate([[0], np.cumsum(batch.sizes[whole])]).astype(np.int64),
        None if batch.lengths is None else batch.lengths[rows],
        {name: values[rows] for name, values in batch.components.items()},
        batch.component_weights,
    )
    result = np.full(len(rows), np.nan)
    result[rows] = _advantages(entry, kept)
    return result


def _needs_tokens(entry: NormalizerEntry) -> bool:
    return entry.baseline == "lengths" or (entry.whiten is not None and entry.whiten.over == "tokens")


def _groups_first(entry: NormalizerEntry, batches: StepBatches) -> bool:
    """Whether only the whitening looks beyond a group; some entries round a lone group otherwise."""
    if entry.whiten is None:
        return False
    if entry.scale is not None and entry.scale.measured == "one row rounded":
        return entry.scale.over == "group" and all(len(step.sizes) > 1 for _, step in batches.steps)
    return entry.scale is None or entry.scale.over == "group"


def _advantages(entry: NormalizerEntry, batch: RewardBatch, starts: Integers | None = None) -> Floats:
    if entry.domain == "binary" and not np.isin(batch.rewards, (0.0, 1.0)).all():
        raise IllFormedGroupError(f"{entry.name} takes rewards 0 and 1: use another entry")
    return advantages(entry, batch, starts=starts)
