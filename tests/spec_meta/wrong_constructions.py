"""The constructions by another road, with knobs: at rest each is right, and a fault is one knob turned."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from search_to_signal.base.numerics import Floats, midranks
from search_to_signal.credit import Rewards
from search_to_signal.credit.base import severity, tilted
from search_to_signal.credit.mappings import novel_scores, repeated_responses
from search_to_signal.records.groups import GroupBatch


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
    copy: float = -0.6000000000000001
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
        result = np.where(copied & ((f < b) | self.copy_wins), self.copy, result)
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
