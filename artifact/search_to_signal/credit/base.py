"""What a reward construction is: a pure function from evaluated groups to learner rewards.

The exponential tilt is here, since Tail-Weighted rewards and the entropic normalizer share it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base import plugins
from search_to_signal.base.errors import IllFormedGroupError, MappingError
from search_to_signal.base.numerics import Bools, Floats
from search_to_signal.records.groups import OUTCOMES, GroupBatch
from search_to_signal.records.schema import Outcome

SEVERITY: dict[Outcome, float] = {
    Outcome.MISSING_RATIONALE: -1.0,
    Outcome.MISSING_CODE: -0.95,
    Outcome.MISSING_FUNCTION: -0.90,
    Outcome.RUNTIME_FAILURE: -0.85,
    Outcome.RANDOMNESS: -0.75,
}
"""Native severities of the typed failures (paper, Reward Constructions, Native CALM)."""

NUMERICALLY_ZERO = 1e-8
"""An RMS of at most this counts as zero (D06)."""

EQUAL_SCORES = 1e-7
"""The host calls two heuristics equal when their scores differ by less than this (D02, D08)."""


@dataclass(frozen=True)
class Rewards:
    """Named reward components, one or more, and the scalar that reaches the learner: finite arrays (N, G)."""

    components: Mapping[str, Floats]
    reward: Floats


@runtime_checkable
class RewardMapping(Protocol):
    """A reward construction phi_a. Pure: equal groups give equal rewards, whatever else is in the batch.

    One with an attribute ``reads_exposure`` that is true is asked only of groups that have exposures.
    """

    @property
    def name(self) -> str:
        """Name in configurations, records and tables."""

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Reward N groups of G completions.

        Args:
            groups: Arrays (N, G) of outcomes, scores (higher is better), bases and more, which cannot be
                written to.

        Returns:
            The reward (N, G) and its named components, (N, G) each, all finite; higher is better.

        Raises:
            IllFormedGroupError: The groups lack what this construction reads.
        """


def rewards_of(mapping: RewardMapping, groups: GroupBatch) -> Rewards:
    """What a mapping, perhaps a third-party one, makes of groups, checked against its protocol.

    Raises MappingError where the mapping fails, ends the process, or returns something other than Rewards of
    shape (N, G) and finite; IllFormedGroupError passes.
    """
    with plugins.third_party_errors(f"mapping {mapping.name}"):
        rewards = mapping(groups)
    shape = groups.outcome.shape
    if not isinstance(rewards, Rewards):
        type_name = type(rewards).__name__
        raise MappingError(f"mapping {mapping.name} returned {type_name}: return rewards.Rewards")
    if not isinstance(rewards.components, Mapping):
        type_name = type(rewards.components).__name__
        raise MappingError(
            f"mapping {mapping.name}: components are {type_name}: give a dict of arrays by name"
        )
    if not rewards.components:
        raise MappingError(
            f"mapping {mapping.name} has no components: give the parts of the reward by name, or the reward "
            "as its only part"
        )
    for name, values in {**rewards.components, "reward": rewards.reward}.items():
        if not isinstance(values, np.ndarray):
            raise MappingError(
                f"mapping {mapping.name}: {name} is {type(values).__name__}: give a numpy array {shape}"
            )
        if values.shape != shape:
            raise MappingError(
                f"mapping {mapping.name}: {name} has shape {values.shape}, groups {shape}: give a number for "
                "every completion"
            )
        if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            raise MappingError(
                f"mapping {mapping.name}: {name} has NaN or infinite values: give finite numbers"
            )
    return rewards


def reads_exposure(mapping: RewardMapping) -> bool:
    """Whether a mapping can credit nothing without exposures, which a host need not give."""
    return bool(getattr(mapping, "reads_exposure", False))


def answerable(mappings: Mapping[str, RewardMapping], groups: GroupBatch) -> dict[str, RewardMapping]:
    """The mappings that these groups can be asked: where no eligible completion has an exposure, and there
    are some, none that reads it. Where some have and some have not, the records lack what they should hold.
    """
    known = ~np.isnan(groups.exposure[groups.eligible])
    exposed = bool(known.any()) or not known.size
    return {name: mapping for name, mapping in mappings.items() if exposed or not reads_exposure(mapping)}


def severity(groups: GroupBatch, valid: float) -> Floats:
    """(N, G): the Native severity of a failure, and the given value for a valid completion."""
    table = np.array([SEVERITY.get(outcome, valid) for outcome in OUTCOMES])
    levels: Floats = table[groups.outcome]
    return levels


def same_score_as_base(groups: GroupBatch) -> Bools:
    """(N, G): the score is closer than EQUAL_SCORES to that of a base; false for a failure."""
    near = np.zeros(groups.score.shape, dtype=np.bool_)
    with np.errstate(over="ignore"):
        for base in groups.bases.T:
            near |= np.abs(groups.score - base[:, None]) < EQUAL_SCORES
    return near


def require(condition: NDArray[np.bool_] | bool, problem: str, remedy: str) -> None:
    """Raise IllFormedGroupError unless the condition holds everywhere."""
    if not np.all(condition):
        raise IllFormedGroupError(f"{problem}: {remedy}")


KL_TOLERANCE = 1e-12
TIE_TOLERANCE = 1e-12


def tilted(utility: Floats, budget: float = math.log(2.0)) -> Floats:
    """Exponential tilt of the uniform distribution, concentrated until its KL equals the budget (D12).

    utility: (N, G) finite. Returns (N, G) weights that sum to 1 per row, proportional to
    exp(beta * utility) with beta >= 0 and KL(weights || uniform) = min(budget, log(G / k)) to 1e-12,
    where k counts the maxima tied within 1e-12. When the target is not below log(G / k) by more than
    1e-12, the limit beta -> infinity is returned: uniform over the maxima.
    """
    gap = np.ascontiguousarray((utility - utility.max(axis=1, keepdims=True)).T)
    maxima = gap >= -TIE_TOLERANCE
    tied = maxima.sum(axis=0)
    weights = maxima / tied
    solvable = np.flatnonzero(budget < np.log(len(gap) / tied) - TIE_TOLERANCE)
    if solvable.size:
        weights[:, solvable] = _solve(gap[:, solvable], budget)
    return np.ascontiguousarray(weights.T)


def _solve(gap: Floats, target: float) -> Floats:
    """Newton on sqrt(KL), nearly linear in beta, inside a shrinking bracket: (G, N) -> (G, N)."""
    result, todo = np.empty_like(gap), np.arange(gap.shape[1])
    beta = np.sqrt(2.0 * target / gap.var(axis=0))
    low, high = np.zeros_like(beta), np.full_like(beta, np.inf)
    for iteration in range(160):
        weight, kl, slope = _tilt(gap, beta)
        error = kl - target
        low, high = np.where(error < 0.0, beta, low), np.where(error > 0.0, beta, high)
        done = (np.abs(error) <= KL_TOLERANCE) | (high <= np.nextafter(low, np.inf))
        if done.any():
            result[:, todo[done]] = weight[:, done]
            if done.all():
                break
            todo, gap, low, high = todo[~done], gap[:, ~done], low[~done], high[~done]
            beta, kl, slope = beta[~done], kl[~done], slope[~done]
        beta = _next_beta(beta, low, high, 2.0 * (kl - np.sqrt(kl * target)), slope, iteration > 12)
    return result


def _tilt(gap: Floats, beta: Floats) -> tuple[Floats, Floats, Floats]:
    """Weights (G, N), KL to the uniform distribution (N,), and d KL / d beta = beta * variance (N,)."""
    weight = np.exp(beta * gap)
    total = weight.sum(axis=0)
    weight /= total
    mean = (weight * gap).sum(axis=0)
    kl = np.log(len(gap) / total) + beta * mean
    slope = beta * (weight * (gap - mean) ** 2).sum(axis=0)
    return weight, np.maximum(kl, 0.0), slope


def _next_beta(beta: Floats, low: Floats, high: Floats, fall: Floats, slope: Floats, bisect: bool) -> Floats:
    """The Newton step where it stays inside the bracket, else a geometric step of the bracket."""
    between = np.where(low > 0.0, np.sqrt(low) * np.sqrt(high), 0.5 * high)
    middle = np.where(np.isinf(high), 8.0 * low, between)
    if bisect:
        return middle
    newton = beta - np.divide(fall, slope, out=np.full_like(beta, np.inf), where=slope > 0.0)
    inside = (newton > low) & (newton < np.minimum(high, 8.0 * beta))
    return np.where(inside, newton, middle)
