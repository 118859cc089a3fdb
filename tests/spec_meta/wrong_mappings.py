"""Plausible reward mappings that are not the constructions whose names they bear, and who rejects them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tests.spec_meta.wrong_constructions import WrongFactorized, WrongNative, WrongSearch, WrongTail

from search_to_signal.base.numerics import Floats
from search_to_signal.credit import MAPPINGS, RewardMapping, Rewards
from search_to_signal.records.groups import GroupBatch


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
    "copies at -3/5, rounded once": (WrongNative(copy=-0.6), "R-NAT-06"),
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
