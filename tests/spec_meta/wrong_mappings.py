"""Plausible reward mappings that are not the constructions whose names they bear.

Each is written with knobs whose defaults are right, so that a fault is one knob turned.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from search_to_signal.numerics import Floats, midranks, tilted
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards import MAPPINGS, RewardMapping, Rewards
from search_to_signal.rewards.base import severity
from search_to_signal.rewards.tail_weighted import novel_scores, repeated_responses

Pick = Callable[[Floats], Floats]


def _over(pick: Callable[..., Floats], values: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return pick(np.where(np.isnan(values).all(axis=1, keepdims=True), 0.0, values), axis=1)


def _comparator(groups: GroupBatch, pick: Callable[..., Floats]) -> Floats:
    if not groups.bases.shape[1]:
        return np.full(len(groups.outcome), np.nan)
    return np.where(np.isnan(groups.bases).all(axis=1), np.nan, _over(pick, groups.bases))


@dataclass(frozen=True)
class WrongNative:
    """Native with one knob turned."""

    base: Callable[..., Floats] = np.nanmax
    levels: tuple[float, ...] = (0.0, -1.0, -0.95, -0.9, -0.85, -0.75)
    low: float = 1e-10
    high: float = 1.0
    slope: float = 0.375
    near: float = 1e-7
    inclusive: bool = False
    copies_of: str = "any"
    copy_wins: bool = False
    denominator: Callable[[Floats, Floats], Floats] = np.minimum
    at_zero: float = np.inf
    initialization: float = 0.0
    name: str = "native"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Native by another road."""
        with np.errstate(all="ignore"):
            reward = self._reward(groups)
        return Rewards(
            {
                "failure": np.where(groups.valid, 0.0, reward),
                "comparison": np.where(groups.valid, reward, 0.0),
            },
            reward,
        )

    def _reward(self, groups: GroupBatch) -> Floats:
        f, b = groups.score, _comparator(groups, self.base)[:, None]
        scale = self.denominator(np.abs(f), np.abs(b))
        ratio = np.where(scale > 0.0, np.abs(f - b) / np.where(scale > 0.0, scale, 1.0), self.at_zero)
        delta = np.clip(ratio, self.low, self.high)
        result = np.where(f > b, 1.0 + delta, np.where(f < b, -self.slope * delta, 0.0))
        copied = self._copied(groups, b)
        result = np.where(copied & ((f < b) | self.copy_wins), -0.6, result)
        result = np.where(np.isnan(b), self.initialization, result)
        return np.where(groups.valid, result, np.array(self.levels)[groups.outcome])

    def _copied(self, groups: GroupBatch, best: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        bases = best if self.copies_of == "best" else groups.bases
        gap = np.abs(groups.score[:, :, None] - bases[:, None, :])
        close = gap <= self.near if self.inclusive else gap < self.near
        copied: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = close.any(axis=2)
        return copied


@dataclass(frozen=True)
class WrongFactorized:
    """Factorized with one knob turned."""

    base: Callable[..., Floats] = np.nanmax
    invalid: float = -1.0
    typed: bool = False
    centre: bool = False
    over_group: bool = False
    threshold: float = 1e-8
    inclusive: bool = True
    clip: float = np.inf
    initialization: bool = False
    weight: float = 0.5
    name: str = "factorized"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Factorized by another road, without protection against overflow."""
        with np.errstate(all="ignore"):
            b = _comparator(groups, self.base)[:, None]
            b = np.where(np.isnan(b), 0.0, b) if self.initialization else b
            member = groups.valid & ~np.isnan(b)
            change = np.where(member, groups.score - b, 0.0)
            count = np.maximum(member.sum(axis=1, keepdims=True), 1)
            if self.centre:
                change = np.where(member, change - change.sum(axis=1, keepdims=True) / count, 0.0)
            count = np.full_like(count, change.shape[1]) if self.over_group else count
            rms = np.sqrt((change**2).sum(axis=1, keepdims=True) / count)
            present = rms > self.threshold if self.inclusive else rms >= self.threshold
            q = np.clip(np.where(present, change / rms, 0.0), -self.clip, self.clip)
        failed = severity(groups, 1.0) if self.typed else self.invalid
        v = np.where(groups.valid, 1.0, failed)
        return Rewards({"validity": v, "quality": q}, self.weight * v + (1.0 - self.weight) * q)


@dataclass(frozen=True)
class WrongTail:
    """Tail weighting with one knob turned."""

    novelty: bool = True
    repetition: str = "every"
    severities: bool = True
    failures_last: bool = True
    ordinal: bool = False
    frontier: str = "before"
    scaled: bool = True
    positive: bool = True
    ungated: bool = False
    share: float = 0.5
    budget: float | None = None
    beta: float | None = None
    multiply: bool = True
    constant_zero: bool = False
    inclusive_novelty: float = 1e-7
    name: str = "tail_weighted"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """Tail weighting by another road."""
        size = groups.outcome.shape[1]
        midrank, gap = (self._ranks(groups) - 1.0) / max(size - 1, 1), self._gap(groups)
        utility = midrank + self.share * gap
        if self.beta is not None:
            weights = np.exp(self.beta * (utility - utility.max(axis=1, keepdims=True)))
            weights /= weights.sum(axis=1, keepdims=True)
        else:
            weights = tilted(utility) if self.budget is None else tilted(utility, self.budget)
        if self.constant_zero:
            weights = np.where(np.ptp(utility, axis=1, keepdims=True) == 0.0, 0.0, weights)
        return Rewards({"midrank": midrank, "gap": gap}, (size if self.multiply else 1) * weights)

    def _ranks(self, groups: GroupBatch) -> Floats:
        score = np.where(groups.valid, groups.score, 0.0)
        failure = severity(groups, 0.0) if self.severities else np.where(groups.valid, 0.0, -1.0)
        failure = failure if self.failures_last else np.zeros_like(failure)
        keys = [failure]
        if self.novelty:
            keys.append(np.where(novel_scores(groups, self.inclusive_novelty), 1.0, 0.0))
        if self.repetition != "ignored":
            repeated = repeated_responses(groups, self.repetition)  # type: ignore[arg-type]
            keys.append(np.where(groups.valid & ~repeated, 1.0, 0.0))
        if self.ordinal:
            keys.append(score)
            return midranks(*keys, np.broadcast_to(np.arange(score.shape[1], dtype=float), score.shape))
        return midranks(*keys, score)

    def _gap(self, groups: GroupBatch) -> Floats:
        member = groups.valid if self.ungated else groups.eligible
        frontier = groups.frontier[:, None]
        if self.frontier == "after":
            frontier = np.fmax(frontier, np.fmax.reduce(groups.score, axis=1, keepdims=True))
        with np.errstate(all="ignore"):
            lift = np.where(member & ~np.isnan(frontier), groups.score - frontier, 0.0)
            lift = np.maximum(lift, 0.0) if self.positive else lift
            rms = np.sqrt(
                (lift**2).sum(axis=1, keepdims=True) / np.maximum(member.sum(axis=1, keepdims=True), 1)
            )
            return np.where(rms > 0.0, lift / rms, 0.0) if self.scaled else np.clip(lift, -1e6, 1e6)


@dataclass(frozen=True)
class WrongSearch:
    """The residual with one knob turned."""

    unit: bool = False
    residual: bool = True
    centre_validity: bool = True
    weight_by_change: bool = True
    threshold: float = 1e-8
    everyone: bool = False
    name: str = "search_exposure"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """The residual by another road, row by row."""
        with np.errstate(all="ignore"):
            rows = [self._row(groups, row) for row in range(len(groups.outcome))]
        parts = {
            name: np.array([row[i] for row in rows])
            for i, name in enumerate(("validity", "quality", "search"))
        }
        return Rewards(parts, parts["validity"] + parts["quality"] + parts["search"])

    def _row(self, groups: GroupBatch, row: int) -> tuple[Floats, Floats, Floats]:
        level = severity(groups, 1.0)[row]
        level = level - level.mean() if self.centre_validity else level
        member, zeros = groups.eligible[row], np.zeros(level.shape)
        if not member.any():
            return self._scaled(level), zeros, zeros
        change = np.where(member, groups.score[row] - groups.best_base[row], 0.0)
        member = np.ones_like(member) if self.everyone else member
        exposure = np.nan_to_num(groups.exposure[row])
        direction = (change - change[member].mean())[member]
        quality = self._scaled(direction)
        product = (exposure * change if self.weight_by_change else exposure)[member]
        product = product - product.mean()
        rest = (
            product - (product @ quality) / (quality @ quality + 1e-8) * quality if self.residual else product
        )
        size = np.sqrt(np.mean(rest**2))
        bound = size + 1e-8 if self.unit else np.sqrt(np.mean(direction**2)) + 2.0 * size + 1e-8
        out_quality, out_search = zeros.copy(), zeros.copy()
        out_quality[member] = quality
        out_search[member] = rest / bound if size > self.threshold else 0.0
        # Overflow is another fault than the one planted.
        return self._scaled(level), np.nan_to_num(out_quality), np.nan_to_num(out_search)

    def _scaled(self, values: Floats) -> Floats:
        size = float(np.sqrt(np.mean(values**2)))
        return values / (size + 1e-8) if size > self.threshold else np.zeros_like(values)


@dataclass(frozen=True)
class Spoiled:
    """A right mapping whose rewards or input are spoiled afterwards."""

    spoil: Callable[[GroupBatch, Floats], Floats]
    name: str = "factorized"

    def __call__(self, groups: GroupBatch) -> Rewards:
        """The built-in mapping of this name, spoiled."""
        right = MAPPINGS[self.name](groups)
        return Rewards(right.components, self.spoil(groups, right.reward))


def _by_position(groups: GroupBatch, reward: Floats) -> Floats:
    return reward + 1e-3 * np.arange(reward.shape[1])


def _by_neighbours(groups: GroupBatch, reward: Floats) -> Floats:
    return reward - reward.mean()


def _overwrites(groups: GroupBatch, reward: Floats) -> Floats:
    groups.score[np.isnan(groups.score)] = 0.0
    return reward


def _nan_when_all_fail(groups: GroupBatch, reward: Floats) -> Floats:
    return np.where(groups.valid.any(axis=1, keepdims=True), reward, np.nan)


def _adds_best_of_group(groups: GroupBatch, reward: Floats) -> Floats:
    best = np.where(groups.valid, groups.score, -np.inf).max(axis=1, keepdims=True)
    return reward + (groups.score == best)


def _forgets_components(groups: GroupBatch, reward: Floats) -> Floats:
    return reward[:, :1]


WRONG: dict[str, tuple[RewardMapping, str]] = {
    "worst base": (WrongNative(base=np.nanmin), "R-NAT-12"),
    "mean base": (WrongNative(base=np.nanmean), "R-NAT-12"),
    "severities swapped": (WrongNative(levels=(0.0, -0.95, -1.0, -0.9, -0.85, -0.75)), "R-NAT-01"),
    "one severity": (WrongNative(levels=(0.0, *[-1.0] * 5)), "R-NAT-01"),
    "no lower clip": (WrongNative(low=0.0), "R-NAT-09"),
    "clip at 2": (WrongNative(high=2.0), "R-NAT-10"),
    "slope 3/4": (WrongNative(slope=0.75), "R-NAT-05"),
    "copy at exactly 1e-7": (WrongNative(inclusive=True), "R-NAT-08"),
    "copy of the best base only": (WrongNative(copies_of="best"), "R-NAT-06"),
    "-3/5 for the copy of the best base": (WrongNative(copy_wins=True), "R-NAT-07"),
    "no copy branch": (WrongNative(near=0.0), "R-NAT-06"),
    "relative to the base": (WrongNative(denominator=lambda f, b: b + 0.0 * f), "R-NAT-03"),
    "relative to the larger": (WrongNative(denominator=np.maximum), "R-NAT-03"),
    "zero denominator gives no delta": (WrongNative(at_zero=0.0), "R-NAT-11"),
    "initialization improves": (WrongNative(initialization=1.0), "R-NAT-02"),
    "NaN at a zero denominator": (WrongNative(at_zero=np.nan), "R-MAP-01"),
    "worst base, factorized": (WrongFactorized(base=np.nanmin), "R-FAC-12"),
    "validity 0 or 1": (WrongFactorized(invalid=0.0), "R-FAC-01"),
    "typed validity": (WrongFactorized(typed=True), "R-FAC-01"),
    "centred quality": (WrongFactorized(centre=True), "R-FAC-04"),
    "RMS over the whole group": (WrongFactorized(over_group=True), "R-FAC-03"),
    "RMS of 1e-8 counts": (WrongFactorized(inclusive=False), "R-FAC-05"),
    "threshold 1e-6": (WrongFactorized(threshold=1e-6), "R-FAC-05"),
    "clipped quality": (WrongFactorized(clip=1.0), "R-FAC-03"),
    "initialization measured from zero": (WrongFactorized(initialization=True), "R-FAC-02"),
    "weights 0.7 and 0.3": (WrongFactorized(weight=0.7), "R-FAC-01"),
    "squares overflow": (WrongFactorized(), "R-FAC-07"),
    "novelty ignored": (WrongTail(novelty=False), "R-TAIL-09"),
    "novelty at exactly 1e-7": (WrongTail(inclusive_novelty=1.0000001e-7), "R-TAIL-10"),
    "repetition ignored": (WrongTail(repetition="ignored"), "R-TAIL-11"),
    "first copy spared": (WrongTail(repetition="all_but_first"), "R-TAIL-12"),
    "failures untyped": (WrongTail(severities=False), "R-TAIL-08"),
    "failures among the valid": (WrongTail(failures_last=False), "R-TAIL-07"),
    "unsorted ties": (WrongTail(ordinal=True), "R-MAP-04"),
    "leaked post-generation frontier": (WrongTail(frontier="after"), "R-TAIL-17"),
    "gap in score units": (WrongTail(scaled=False), "R-TAIL-16"),
    "gap below the frontier": (WrongTail(positive=False), "R-TAIL-16"),
    "gap without comparator": (WrongTail(ungated=True), "R-TAIL-18"),
    "whole gap": (WrongTail(share=1.0), "R-TAIL-21"),
    "target log 1.5": (WrongTail(budget=float(np.log(1.5))), "R-TAIL-02"),
    "fixed beta": (WrongTail(beta=2.0), "R-TAIL-02"),
    "steep instead of the limit": (WrongTail(beta=30.0), "R-TAIL-03"),
    "weights not times G": (WrongTail(multiply=False), "R-TAIL-01"),
    "constant group erased": (WrongTail(constant_zero=True), "R-TAIL-04"),
    "residual at full strength": (WrongSearch(unit=True), "R-SEARCH-06"),
    "not residualized": (WrongSearch(residual=False), "R-SEARCH-05"),
    "validity not centred": (WrongSearch(centre_validity=False), "R-SEARCH-02"),
    "exposure alone": (WrongSearch(weight_by_change=False), "R-SEARCH-15"),
    "scale of 1e-9 counts": (WrongSearch(threshold=1e-9), "R-SEARCH-10"),
    "centred over everyone": (WrongSearch(everyone=True), "R-SEARCH-04"),
    "depends on position": (Spoiled(_by_position), "R-MAP-04"),
    "depends on the batch": (Spoiled(_by_neighbours), "R-MAP-05"),
    "overwrites its input": (Spoiled(_overwrites), "R-MAP-06"),
    "NaN when all fail": (Spoiled(_nan_when_all_fail), "R-MAP-01"),
    "bonus for the best of the group": (Spoiled(_adds_best_of_group), "R-FAC-13"),
    "one reward per group": (Spoiled(_forgets_components), "R-MAP-01"),
    "position under permutation": (Spoiled(_by_position, "native"), "R-MAP-03"),
}
