"""Rewards of groups of any sizes, flat in memory. Rows are responses; a group is a run of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.errors import IllFormedGroupError
from search_to_signal.numerics import Floats

Ints = NDArray[np.int64]
Reals = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class RewardBatch:
    """The rewards of one batch: (n,) values of N groups, group g being rows offsets[g] to offsets[g + 1].

    ``offsets``: (N + 1,), from 0 to n, rising, so no group is empty. ``lengths``: (n,) completion tokens that
    enter the loss, for entries that weigh by them. ``components``: (n,) each, the named parts of the reward,
    and ``component_weights`` their weights (1 where missing), for entries that normalize parts. A reward may
    be NaN. Raises IllFormedGroupError for shapes that do not fit.
    """

    rewards: Floats
    offsets: Ints
    lengths: Ints | None = None
    components: Mapping[str, Floats] = field(default_factory=dict)
    component_weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.rewards)
        rising = len(self.offsets) > 1 and bool((np.diff(self.offsets) > 0).all())
        if not rising or self.offsets[0] != 0 or self.offsets[-1] != count:
            raise IllFormedGroupError(
                f"group offsets do not rise from 0 to {count}: give the first row of each group, then {count}"
            )
        columns: dict[str, NDArray[Any]] = {"rewards": self.rewards, **self.components}
        if self.lengths is not None:
            columns["lengths"] = self.lengths
        for name, column in columns.items():
            if column.shape != (count,):
                raise IllFormedGroupError(f"{name} has shape {column.shape}: give one number for each reward")

    @classmethod
    def even(cls, rewards: Reals, lengths: Ints | None = None) -> "RewardBatch":
        """Groups of one size: rewards (N, G) and lengths (N, G)."""
        if rewards.ndim != 2 or rewards.size == 0:
            raise IllFormedGroupError(
                f"rewards have shape {rewards.shape}: pass N groups of G >= 1 as (N, G)"
            )
        offsets = np.arange(0, rewards.size + 1, rewards.shape[1], dtype=np.int64)
        tokens = None if lengths is None else np.asarray(lengths, dtype=np.int64).ravel()
        return cls(np.asarray(rewards, dtype=np.float64).ravel(), offsets, tokens)

    @classmethod
    def uneven(cls, groups: Sequence[Sequence[float]], lengths: Iterable[int] | None = None) -> "RewardBatch":
        """Groups as sequences of rewards; ``lengths`` run through all of them."""
        offsets = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
        flat = np.array([value for group in groups for value in group], dtype=np.float64)
        tokens = None if lengths is None else np.array(list(lengths), dtype=np.int64)
        return cls(flat, offsets, tokens)

    @cached_property
    def sizes(self) -> Ints:
        """Responses per group, (N,)."""
        return np.diff(self.offsets)

    @cached_property
    def is_even(self) -> bool:
        """Whether all groups have one size."""
        return bool((self.sizes == self.sizes[0]).all())

    @property
    def tokens(self) -> Ints:
        """``lengths``; raises IllFormedGroupError where the batch has none."""
        if self.lengths is None:
            raise IllFormedGroupError("this entry weighs by completion tokens: give the batch its lengths")
        return self.lengths

    def merged(self) -> "RewardBatch":
        """The same rows as one group."""
        ends = self.offsets[[0, -1]]
        return RewardBatch(self.rewards, ends, self.lengths, self.components, self.component_weights)

    def total(self, values: NDArray[Any], added: Callable[[Reals], Reals] | None = None) -> NDArray[Any]:
        """Sum over each group: (n,) -> (N,), in the precision of ``values``.

        ``added`` takes the groups of a size, (N, G), to their sums, (N,), where the order of adding matters.
        """
        if added is None:
            return np.add.reduceat(values, self.offsets[:-1])
        if self.is_even:
            return added(values.reshape(len(self.sizes), -1))
        result = np.empty(len(self.sizes), dtype=values.dtype)
        for size in np.unique(self.sizes):
            chosen = self.sizes == size
            result[chosen] = added(values[self.offsets[:-1][chosen, None] + np.arange(size)])
        return result

    def spread(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """A number of each group given to each of its rows: (N,) -> (n,)."""
        return np.repeat(numbers, int(self.sizes[0]) if self.is_even else self.sizes)

    def by_size(self, values: Reals, rule: Callable[[Reals], Reals]) -> Reals:
        """Apply ``rule``, (N, G) -> (N, G), to the groups of each size: (n,) -> (n,)."""
        if self.is_even:
            return rule(values.reshape(len(self.sizes), -1)).ravel()
        result = np.empty_like(values)
        for size in np.unique(self.sizes):
            rows = self.offsets[:-1][self.sizes == size, None] + np.arange(size)
            result[rows] = rule(values[rows])
        return result
