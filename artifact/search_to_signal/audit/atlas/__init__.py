"""The atlas of normalizers: what frameworks make of a group's rewards, as data with code that follows it.

``entries.toml`` holds the data, ``compute.advantages`` computes a batch under an entry, ``token_weights`` the
second stage. Needs numpy, and nothing that trains.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.errors import ConfigError, IllFormedGroupError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.settings import load_toml

ENTRIES = Path(__file__).parent / "entries.toml"

Property = Literal["order", "negative_mean", "offset", "scale", "ties", "tiny_spread"]
Aggregation = Literal[
    "token_mean",
    "token_sum",
    "sequence_mean",
    "sequence_sum",
    "constant_length",
    "constant_length_sum",
    "prompt_mean",
    "rollout_mean",
    "backend",
    "unread",
]


class NormalizerSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a framework was read. ``read`` is the day; empty when nobody could read it."""

    framework: str
    version: str
    repository: str
    commit: str = ""
    date: str = ""
    read: str = ""


class DeviationScale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A division by a deviation.

    ``over``: whose deviation. ``at``: where epsilon stands: added to the deviation, added to the variance, or
    the least variance. ``zero``: whether a deviation of 0 divides too. ``measured``: of which squares the
    variance is made, which shows where rewards are close to each other and far from 0:

    centred            those of the centred values, in the precision of the framework
    exact              in float64 around the exact mean, as torch.std of several rows
    rounded mean       in float64 around the mean as it was rounded, as torch.std of one row
    one row rounded    ``rounded mean`` where the batch is one group, else ``exact``: torch.std over dim 1
    mean of squares    E[x^2] - E[x]^2
    sum of squares     (sum x^2 - (sum x)^2 / n) / (n - 1)

    Of a whitening, ``shift`` takes the mean off, and ``more`` is added to the number of tokens.
    """

    deviation: Literal["sample", "population"]
    over: Literal["group", "batch", "sequences", "tokens"] = "group"
    epsilon: float = 0.0
    at: Literal["deviation", "variance", "least variance", "least variance and deviation", "none"] = (
        "deviation"
    )
    zero: Literal["divided", "unscaled"] = "divided"
    measured: Literal[
        "centred", "exact", "rounded mean", "one row rounded", "mean of squares", "sum of squares"
    ] = "centred"
    shift: bool = True
    more: float = 0.0


class NormalizerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One normalizer of one framework at one commit.

    First stage: the baseline is taken off and ``scale`` divides, or ``formula`` names a function of
    formulas.py with its ``options``. ``whiten`` then centres and scales over the batch. ``aggregation`` is
    the framework's usual second stage, from advantages to weights of tokens; ``aggregations`` are its others.
    ``leaving``: how a member is left out of the baseline ``others``. ``sums``: the order in which rewards
    of a group are added (``batch.SUMS``).
    ``singleton``, ``flat``, ``nan``, ``uneven``: what such groups get before any whitening. ``breaks``: the
    properties that do not hold.
    """

    name: str
    algorithm: str
    source: str
    path: str
    function: str
    singleton: Literal["zero", "reward", "reward / epsilon", "nan", "refused", "own formula"]
    nan: Literal["row", "group", "batch", "ignored", "as zero", "refused"]
    aggregation: Aggregation
    flat: Literal["zero", "rounding", "reward"] = "rounding"
    uneven: Literal["by group", "whole batch", "refused"] = "by group"
    scope: Literal["group", "batch"] = "group"
    dtype: Literal["float32", "float64"] = "float32"
    order: str = "mean, centre, deviation, divide"
    baseline: Literal["mean", "others", "lengths", "none"] = "mean"
    leaving: Literal["centred", "subtracted", "both scaled", "multiplied"] = "centred"
    sums: Literal["blocked", "in turn", "pairwise"] = "blocked"
    scale: DeviationScale | None = None
    whiten: DeviationScale | None = None
    formula: str = ""
    options: Mapping[str, float] = {}
    components: bool = False
    domain: Literal["real", "binary"] = "real"
    aggregations: tuple[Aggregation, ...] = ()
    also: tuple[str, ...] = ()
    breaks: tuple[Property, ...] = ()
    note: str = ""

    @property
    def deviation(self) -> str:
        """The deviation that the first stage divides by, in a word."""
        if self.formula:
            return _STEPS.get(self.formula, ("none", ""))[0]
        return self.scale.deviation if self.scale else "none"

    @property
    def epsilon(self) -> float:
        """The stabilizer of the first stage, else of the second; 0 where there is none."""
        if self.formula:
            return self.options.get("epsilon", 0.0)
        stage = self.scale or self.whiten
        return 0.0 if stage is None else stage.epsilon

    @property
    def epsilon_at(self) -> str:
        """Where the stabilizer stands."""
        if not self.epsilon:
            return "none"
        if self.formula:
            return _STEPS[self.formula][1]
        stage = self.scale or self.whiten
        return "none" if stage is None else stage.at


# Of a formula: the deviation in it, and what its epsilon is added to.
_STEPS = {
    "maxrl": ("none", "mean"),
    "gpg": ("none", "none"),
    "leave_one_out": ("leave-one-out", "deviation"),
    "best_of_group": ("sample", "deviation"),
    "passk_training": ("binomial", "deviation"),
    "entropic": ("none", "mean of the others"),
    "rvar": ("sample", "deviation and quantile distance"),
    "normalizer.group": ("sample", "deviation"),
    "normalizer.trl_float32": ("sample", "deviation"),
    "normalizer.batch": ("sample", "deviation"),
    "normalizer.rank": ("sample", "deviation"),
    "normalizer.gdpo": ("sample", "deviation"),
    "normalizer.entropic": ("none", "mean of the others"),
}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: dict[str, NormalizerSource]
    entry: list[dict[str, Any]]


@cache
def _file() -> _File:
    return load_toml(ENTRIES, _File)


def sources() -> Mapping[str, NormalizerSource]:
    """Every source by its key, those that nobody could read included."""
    return _file().sources


@cache
def entries() -> Mapping[str, NormalizerEntry]:
    """Every entry that has a formula, by name, in the order of the file."""
    converted: dict[str, NormalizerEntry] = {}
    raw: dict[str, dict[str, Any]] = {}
    for table in _file().entry:
        whole = _whole(table, raw)
        raw[whole["name"]] = whole
        try:
            entry = msgspec.convert(whole, NormalizerEntry)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{ENTRIES.name}: entry {whole['name']}: {error}; correct that key") from error
        if entry.source not in sources():
            raise ConfigError(
                f"{ENTRIES.name}: entry {entry.name} is of no known source: add {entry.source!r}"
            )
        converted[entry.name] = entry
    return converted


def _whole(table: dict[str, Any], before: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """An entry that is ``like`` one before it states what differs, and what it is ``without``."""
    own = {key: value for key, value in table.items() if key not in ("like", "without")}
    if "like" not in table:
        return own
    if table["like"] not in before:
        raise ConfigError(
            f"{ENTRIES.name}: {table.get('name')} is like {table['like']!r}: write that one first"
        )
    model = before[table["like"]]
    return {**{key: value for key, value in model.items() if key not in table.get("without", ())}, **own}


def source_of(entry: NormalizerEntry) -> NormalizerSource:
    """Where an entry was read."""
    return sources()[entry.source]


def get_entry(name: str) -> NormalizerEntry:
    """Return an entry by name; raises ConfigError with the known names."""
    if name not in entries():
        raise ConfigError(f"the atlas has no normalizer {name!r}: use one of {', '.join(entries())}")
    return entries()[name]


def row(entry: NormalizerEntry) -> dict[str, str]:
    """The cells of an entry in the plain table."""
    source = source_of(entry)
    place = f"{source.repository}@{source.commit[:12]}" if source.commit else source.repository
    # Both stages of an entry that whitens are named, and whose deviation it is where it is not the group's.
    over = f" of {entry.scale.over}" if entry.scale and entry.scale.over != "group" else ""
    second = f", {entry.whiten.deviation} of {entry.whiten.over}" if entry.whiten else ""
    at = f" at {entry.epsilon_at}" if entry.epsilon else ""
    return {
        "name": entry.name,
        "framework": source.framework,
        "version": source.version,
        "deviation": f"{entry.deviation}{over}{second}",
        "epsilon": f"{entry.epsilon:g}{at}",
        "singleton": entry.singleton,
        "flat": entry.flat,
        "aggregation": entry.aggregation,
        "source": f"{place}:{entry.path}" if entry.path else place,
    }


def table(chosen: Iterable[NormalizerEntry]) -> str:
    """Entries, one or more, as aligned plain text, and beneath it the sources that nobody could read."""
    rows = [row(entry) for entry in chosen]
    cells = [tuple(rows[0]), *(tuple(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    unread = [source.framework for source in sources().values() if source.repository == "unread"]
    return "\n".join([*lines, "", f"Not read in a source: {', '.join(unread)}."])


def document(chosen: Iterable[NormalizerEntry]) -> list[Mapping[str, Any]]:
    """Entries with everything that the atlas says of them, their source included, for JSON."""
    return [
        {
            **msgspec.to_builtins(entry),
            "deviation": entry.deviation,
            "epsilon": entry.epsilon,
            "epsilon_at": entry.epsilon_at,
            "source": msgspec.to_builtins(source_of(entry)),
        }
        for entry in chosen
    ]


def chosen(name: str | None) -> list[NormalizerEntry]:
    """The entries whose name or framework begins with ``name``, without regard to case; all without one."""
    wanted = (name or "").lower()
    return [
        entry
        for entry in entries().values()
        if entry.name.lower().startswith(wanted) or source_of(entry).framework.lower().startswith(wanted)
    ]


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
