"""Group normalizers: rewards of N groups to advantages. The paper's is the default everywhere.

Every normalizer maps (N, G) finite rewards to (N, G) finite advantages; a higher reward never gets a
lower advantage. A group of one has no peer and gets 0. Other input raises IllFormedGroupError.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast, runtime_checkable

import numpy as np

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError, IllFormedGroupError, MappingError
from search_to_signal.base.numerics import Floats, midranks
from search_to_signal.credit.base import tilted

Normalizer = Callable[[Floats], Floats]
"""From (N, G) finite rewards to (N, G) finite advantages; raises IllFormedGroupError for other input."""

STABILIZER = 1e-4
LEAVE_ONE_OUT_FLOOR = 1e-12
_LARGE = 1e100
_LARGE_FLOAT32 = 1e36


@runtime_checkable
class ComponentNormalizer(Protocol):
    """A normalizer that reads named reward components instead of the scalar reward."""

    def of_components(self, components: Mapping[str, Floats]) -> Floats:
        """Normalize components.

        Args:
            components: By name, (N, G) finite rewards each.

        Returns:
            (N, G) finite advantages.

        Raises:
            IllFormedGroupError: A component is not finite, or not (N, G).
        """


def group_advantages(rewards: Floats) -> Floats:
    """A = (r - mean) / (s + 1e-4) with the sample standard deviation s of the group (ddof 1), in float64.

    rewards: (N, G). Zero sum, |A| <= (G - 1) / sqrt(G), and exact zeros where max == min.
    Source: paper, eq. grpo-normalization; D16.
    """
    centred, unit = _centred(rewards)
    peers = max(centred.shape[1] - 1, 1)
    deviation = np.sqrt((centred * centred).sum(axis=1, keepdims=True) / peers)
    result: Floats = centred / (deviation + STABILIZER / unit)
    return result


def trl_float32(rewards: Floats) -> Floats:
    """The same expression in float32 and in TRL 0.15.1's order of operations, for parity (D16).

    As torch computes it on the CPU for a batch of one group: the mean is a sequential float32 sum, the
    deviation a float64 one around that rounded mean. Flat groups can keep a rounding residue, which divided
    by 1e-4 becomes a small advantage.
    """
    checked = _checked(rewards)
    if (np.abs(checked) > _LARGE_FLOAT32).any():
        raise IllFormedGroupError(
            "rewards exceed 1e36, and float32 cannot hold their sums: use the default normalizer"
        )
    single = checked.astype(np.float32)
    count = np.float32(single.shape[1])
    if count == 1:
        return np.zeros(single.shape)
    mean = np.zeros((len(single), 1), dtype=np.float32)
    for column in single.T[:, :, None]:
        mean += column
    mean /= count
    squares = np.zeros((len(single), 1))
    for column in single.T[:, :, None]:
        squares += (column - mean.astype(np.float64)) ** 2
    deviation = np.sqrt(squares / (float(count) - 1.0)).astype(np.float32)
    return np.asarray((single - mean) / (deviation + np.float32(STABILIZER)), dtype=np.float64)


def dr_grpo(rewards: Floats) -> Floats:
    """A = r - mean: no division by the deviation (Dr. GRPO)."""
    centred, unit = _centred(rewards)
    return _finite(centred, unit)


def rloo(rewards: Floats) -> Floats:
    """A = r - mean of the other completions of the group (leave one out)."""
    centred, unit = _centred(rewards)
    size = centred.shape[1]
    return _finite(centred * (size / max(size - 1, 1)), unit)


def rank(rewards: Floats) -> Floats:
    """The paper's normalizer over average ranks: keeps the order and forgets the spacing."""
    return group_advantages(midranks(_checked(rewards)))


def entropic(rewards: Floats) -> Floats:
    """TTT-Discover's rule: A_i = e_i / (mean of the other e_j + 1e-12) - 1 with e = exp(beta (r - max r)).

    beta is set per group so that KL(softmax(beta r) || uniform) = log 2, or goes to infinity where ties or
    G = 2 put log 2 out of reach; there the floor 1e-12 bounds the advantage of a lone maximum by 1e12.
    """
    scaled, _ = _sized(_checked(rewards))
    size = scaled.shape[1]
    if size == 1:
        return np.zeros_like(scaled)
    weight = tilted(scaled)
    weight /= weight.max(axis=1, keepdims=True)
    others = np.maximum(weight.sum(axis=1, keepdims=True) - weight, 0.0) / (size - 1)
    flat = scaled.max(axis=1, keepdims=True) == scaled.min(axis=1, keepdims=True)
    return np.where(flat, 0.0, weight / (others + LEAVE_ONE_OUT_FLOOR) - 1.0)


@dataclass(frozen=True)
class BatchScaled:
    """A = (r - group mean) / (s + 1e-4) with s over a batch of consecutive groups.

    ``groups`` is the number of groups in a batch; with 1, the study's batch, it is the paper's normalizer.
    """

    groups: int = 8

    def __call__(self, rewards: Floats) -> Floats:
        """rewards: (N, G); rows [0, groups), [groups, 2 groups), ... share a scale."""
        scaled, unit = _sized(_checked(rewards), whole=True)
        centred, _ = _centred(scaled)
        out = np.empty_like(centred)
        for start in range(0, len(scaled), self.groups):
            rows = slice(start, start + self.groups)
            deviation = np.std(scaled[rows], ddof=1) if scaled[rows].size > 1 else 0.0
            out[rows] = centred[rows] / (deviation + STABILIZER / float(unit))
        return out


@dataclass(frozen=True)
class Gdpo:
    """The paper's normalizer applied to each reward component, then a weighted sum (GDPO).

    ``weights`` default to 1 for every component. GDPO's last step, a rescaling over the batch, is left
    out: the study's batch is one group. Given a scalar reward alone, that is the only component.
    """

    weights: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, rewards: Floats) -> Floats:
        """Treat the scalar reward, (N, G), as the only component."""
        return group_advantages(rewards)

    def of_components(self, components: Mapping[str, Floats]) -> Floats:
        """components: (N, G) each -> (N, G)."""
        parts = [self.weights.get(name, 1.0) * group_advantages(part) for name, part in components.items()]
        total: Floats = np.sum(parts, axis=0)
        return total


NORMALIZERS: dict[str, Normalizer] = {
    "group": group_advantages,
    "trl_float32": trl_float32,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "batch": BatchScaled(),
    "rank": rank,
    "gdpo": Gdpo(),
    "entropic": entropic,
}

READINGS: Mapping[str, str] = {"trl_float32": "D16"}
"""The normalizers that are the other reading of a decision of spec/decisions.toml, with its id."""


DEFAULT = "group"
"""The normalizer of a run whose profile names none, and of every run of a version that had no choice."""

GROUP = "search_to_signal.normalizers"


def get_normalizer(name_or_path: str) -> Normalizer:
    """Return a normalizer by name, by entry point of group search_to_signal.normalizers, or by pkg.mod:obj.

    Raises ConfigError with the known names.
    """
    return _usable(name_or_path, plugins.load(name_or_path, NORMALIZERS, GROUP))


def find_normalizer(name_or_path: str) -> Normalizer:
    """``get_normalizer`` for a name that a results directory gives: runs no code that was not allowed.

    Raises ConfigError as ``get_normalizer`` does, and for an import path that was not loaded before.
    """
    return _usable(name_or_path, plugins.find(name_or_path, NORMALIZERS, GROUP, "--normalizer"))


def _usable(name_or_path: str, plugin: object) -> Normalizer:
    if isinstance(plugin, type) or not callable(plugin):
        raise ConfigError(
            f"{name_or_path!r} is not a normalizer: give a function of (N, G) rewards that returns (N, G) "
            "advantages; call a class first"
        )
    return cast(Normalizer, plugin)


def advantages(normalizer: Normalizer, reward: Floats, components: Mapping[str, Floats]) -> Floats:
    """Advantages, (N, G), by the rewards of N groups, or by components where the normalizer reads those.

    Raises MappingError where the normalizer fails, ends the process, or returns something other than finite
    numbers of shape (N, G); IllFormedGroupError passes.
    """
    name = getattr(normalizer, "__name__", type(normalizer).__name__)
    with plugins.third_party_errors(f"normalizer {name}"):
        if isinstance(normalizer, ComponentNormalizer):
            returned = normalizer.of_components({key: part.copy() for key, part in components.items()})
        else:
            returned = normalizer(reward.copy())
    try:
        values = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MappingError(
            f"normalizer {name} returned something other than numbers ({error}): return advantages"
        ) from error
    if values.shape != reward.shape:
        raise MappingError(
            f"normalizer {name} returned shape {values.shape} for rewards of shape {reward.shape}"
        )
    if not np.isfinite(values).all():
        raise MappingError(f"normalizer {name} returned NaN or infinite values: return finite numbers")
    return values


def advantages_by_group(normalizer: Normalizer, reward: Floats, components: Mapping[str, Floats]) -> Floats:
    """``advantages`` as a run has them, (N, G): every group is normalized alone.

    Our own normalizers but ``batch`` look at no other group, and give all of them the same bits in one call.
    """
    if len(reward) and any(normalizer is NORMALIZERS[name] for name in NORMALIZERS if name != "batch"):
        return advantages(normalizer, reward, components)
    groups = [slice(i, i + 1) for i in range(len(reward))]
    rows = [
        advantages(normalizer, reward[group], {name: part[group] for name, part in components.items()})
        for group in groups
    ]
    return np.concatenate(rows) if rows else np.zeros_like(reward)


def _checked(rewards: Floats) -> Floats:
    rewards = np.asarray(rewards, dtype=np.float64)
    if rewards.ndim != 2 or rewards.shape[1] < 1:
        raise IllFormedGroupError(f"rewards have shape {rewards.shape}: pass N groups of G >= 1 as (N, G)")
    if not np.isfinite(rewards).all():
        raise IllFormedGroupError("rewards contain NaN or infinity: repair the mapping that made them")
    return rewards


def _sized(rewards: Floats, whole: bool = False) -> tuple[Floats, Floats]:
    """rewards / unit and unit, where unit is 1 unless a group is so large that its squares overflow."""
    unit = np.abs(rewards).max(axis=None if whole else 1, keepdims=not whole, initial=0.0)
    unit = np.where(unit > _LARGE, unit, 1.0)
    return rewards / unit, unit


def _centred(rewards: Floats) -> tuple[Floats, Floats]:
    """(r - mean) / unit and unit; measured from the minimum, so that a shared offset leaves no rounding."""
    scaled, unit = _sized(_checked(rewards))
    shifted = scaled - scaled.min(axis=1, keepdims=True)
    return shifted - shifted.mean(axis=1, keepdims=True), unit


def _finite(values: Floats, unit: Floats) -> Floats:
    limit = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        return np.clip(values * unit, -limit, limit)
