"""Rewards of groups of any sizes, flat in memory. Rows are responses; a group is a run of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.errors import ConfigError, IllFormedGroupError
from search_to_signal.base.numerics import Floats

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


# Sums of float32 rows in the orders in which frameworks take them: where they cancel, the order shows. Each
# takes (N, G) to (N,). ``blocked`` is torch.sum on the CPU, as torch 2.5 runs it on every x86 processor.

Sum = Callable[[Reals], Reals]

# Bytes of a vector of torch's kernel, and how many of its sums run side by side.
_VECTOR, _CHAINS = 32, 4


def blocked(rows: Reals) -> Reals:
    """As torch.sum adds a contiguous row of fewer than 512: lanes first, four chains of them side by side."""
    count, width = rows.shape[1], _VECTOR // rows.itemsize
    if count < width:
        return _chained(rows[:, :, None])[:, 0]
    whole = count // width * width
    lanes = _chained(rows[:, :whole].reshape(len(rows), -1, width))
    return in_turn(np.concatenate([rows[:, whole:], lanes], axis=1))


def in_turn(rows: Reals) -> Reals:
    """One after another, as index_add_ and bincount do."""
    total = np.zeros(len(rows), dtype=rows.dtype)
    for column in rows.T:
        total += column
    return total


def pairwise(rows: Reals) -> Reals:
    """As numpy adds a row."""
    total: Reals = np.add.reduce(np.ascontiguousarray(rows), axis=1)
    return total


def _chained(blocks: Reals) -> Reals:
    """(N, V, W) -> (N, W): every fourth block is of one chain, what is left over goes to the first."""
    full = blocks.shape[1] // _CHAINS * _CHAINS
    # Chains that no block enters add nothing.
    chains = np.zeros((len(blocks), _CHAINS if full else 1, blocks.shape[2]), dtype=blocks.dtype)
    for start in range(0, full, _CHAINS):
        chains += blocks[:, start : start + _CHAINS]
    total: Reals = chains[:, 0]
    for rest in range(full, blocks.shape[1]):
        total = total + blocks[:, rest]
    for chain in range(1, chains.shape[1]):
        total = total + chains[:, chain]
    return total


SUMS: Mapping[str, Sum] = {"blocked": blocked, "in turn": in_turn, "pairwise": pairwise}


# The second stage: how a loss turns advantages into weights of tokens, on one device. The weight of a token
# is what its advantage is multiplied by in the loss, ratios and clipping left out. Where a batch is spread
# over devices or accumulated, a framework may take totals of a part; entries.toml notes it.

MEANING = {
    "token_mean": "1 / tokens of the batch",
    "token_sum": "1",
    "sequence_mean": "1 / (responses x tokens of the response): mean over responses of their token means",
    "sequence_sum": "1 / responses: mean over responses of their token sums",
    "constant_length": "1 / (responses x greatest length)",
    "constant_length_sum": "1 / greatest length: grows with the number of responses",
    "prompt_mean": "1 / (prompts x tokens of the prompt's group)",
    "rollout_mean": "1 / (rollouts x tokens of the rollout): sequence_mean where a rollout is one response",
    "backend": "left to the backend that trains",
    "unread": "not read in a source",
}


def token_weights(
    aggregation: str,
    batch: RewardBatch,
    greatest_length: int | None = None,
    rollouts: NDArray[Any] | None = None,
) -> Floats:
    """Weight of one token of each response, (n,); times its length it is the weight of the response.

    ``greatest_length``: the constant of the constant_length rules, in tokens. ``rollouts``: (n,) equal where
    responses are parts of one rollout; each response is one where it is missing. One without tokens
    gets 0.
    Raises ConfigError for a rule that is unknown or lacks its constant, IllFormedGroupError without lengths.
    """
    known = [name for name in MEANING if name not in ("backend", "unread")]
    if aggregation not in known:
        raise ConfigError(
            f"there is no rule {aggregation!r} for the weights of tokens: use one of {', '.join(known)}"
        )
    lengths = batch.tokens.astype(np.float64)
    count, ones = np.count_nonzero(lengths), np.ones_like(lengths)
    divisor: NDArray[Any]
    if aggregation.startswith("constant_length"):
        if greatest_length is None:
            raise ConfigError(f"{aggregation} divides by a greatest length: give it")
        rows = 1 if aggregation == "constant_length_sum" else len(lengths)
        divisor = ones * greatest_length * rows
    elif aggregation == "sequence_mean":
        divisor = lengths * count
    elif aggregation == "rollout_mean":
        parts = np.arange(len(lengths)) if rollouts is None else np.unique(rollouts, return_inverse=True)[1]
        divisor = np.bincount(parts, weights=lengths)[parts] * len(np.unique(parts))
    elif aggregation == "prompt_mean":
        divisor = batch.spread(batch.total(lengths)) * len(batch.sizes)
    else:
        totals = {"token_mean": lengths.sum(), "token_sum": 1.0, "sequence_sum": float(count)}
        divisor = ones * totals[aggregation]
    weights: Floats = np.divide(1.0, divisor, out=np.zeros_like(lengths), where=lengths > 0)
    return weights
