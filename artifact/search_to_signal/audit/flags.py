"""What became of single groups and completions: of differences between rewards, of repeats, of a search."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.groups import PROGRAM, UNKNOWN, Floats, RewardGroups, sorted_within, spans
from search_to_signal.base.numerics import Sums

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class RepeatSums(Sums):
    """Of completions whose response is logged: those equal to an earlier one of their group, and the sum of
    [A]_+ over them and over all."""

    completions: int = 0
    repeats: int = 0
    repeat_mass: float = 0.0
    mass: float = 0.0

    @property
    def share(self) -> float | None:
        """Share of the positive advantage that repeats take; None without any."""
        return self.repeat_mass / self.mass if self.mass else None


def repeat_flags(groups: RewardGroups) -> dict[str, Bools]:
    """(N,): groups with a response twice, and those in which equal responses get different rewards."""
    order, same = _neighbours(groups)
    after, before = order[1:][same], order[:-1][same]
    earlier, later = groups.reward[before], groups.reward[after]
    unequal = (earlier != later) & ~(np.isnan(earlier) & np.isnan(later))
    flagged = {"repeated": after, "disagreeing": after[unequal]}
    return {name: np.isin(np.arange(len(groups.step)), groups.group[rows]) for name, rows in flagged.items()}


def repeat_sums(groups: RewardGroups, advantage: Floats) -> RepeatSums:
    """The sums of a batch; every occurrence after the first counts as a repeat."""
    order, same = _neighbours(groups)
    logged = groups.response != 0
    trained = np.isfinite(advantage) & groups.in_loss
    gain = np.where(trained, np.maximum(advantage, 0.0), 0.0)
    # In the order of the log: numbers of responses differ from process to process.
    repeats = np.sort(order[1:][same])
    return RepeatSums(int(logged.sum()), len(repeats), float(gain[repeats].sum()), float(gain[logged].sum()))


def copied_flags(groups: RewardGroups) -> Bools:
    """(N,): groups of two and more completions that are all one program, or one text."""

    def is_one(values: NDArray[Any]) -> Bools:
        starts = groups.offsets[:-1]
        one: Bools = np.minimum.reduceat(values, starts) == np.maximum.reduceat(values, starts)
        return one

    same = is_one(groups.response) & (groups.response[groups.offsets[:-1]] != 0)
    if PROGRAM in groups.metrics:
        same |= is_one(groups.metrics[PROGRAM])
    copied: Bools = (groups.sizes > 1) & same
    return copied


def doubled_flags(groups: RewardGroups) -> Bools:
    """(R,): rows that equal an earlier one of their group in all that is read of them, response included."""
    flags = np.zeros(len(groups.response), dtype=np.bool_)
    if not _neighbours(groups)[1].any():
        return flags
    numbers = (groups.reward, groups.advantage, groups.tokens)
    texts = (groups.group, groups.response, groups.label.code, groups.status.code, groups.masked)
    columns: list[NDArray[Any]] = [*texts, *numbers, *groups.components.values(), *groups.metrics.values()]
    order = sorted_within(groups, groups.response, *numbers)
    later, earlier = order[1:], order[:-1]
    equal = groups.response[later] != 0
    for column in columns:
        one, other = column[later], column[earlier]
        # What is missing in both is equal.
        equal &= (one == other) | ((one != one) & (other != other))
    flags[later[equal]] = True
    return flags


def _neighbours(groups: RewardGroups) -> tuple[NDArray[np.intp], Bools]:
    """Rows ordered by group and response, and which of them equal the one before; the order is stable."""
    if not groups.response.any():
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.bool_)
    group = groups.group
    order = sorted_within(groups, groups.response)
    response, where = groups.response[order], group[order]
    return order, (response[1:] == response[:-1]) & (where[1:] == where[:-1]) & (response[1:] != 0)


def seen_before(groups: RewardGroups, seen: set[int]) -> Bools:
    """(R,): rows whose response stood in the log before; adds them to ``seen``."""
    repeated = np.zeros(len(groups.response), dtype=np.bool_)
    for row, response in enumerate(groups.response.tolist()):
        repeated[row] = response in seen
        if response:
            seen.add(response)
    return repeated


# Unit roundoff of float32, times what a few operations may cost.
FLOAT32 = 4 * 2.0**-24
# An advantage nearer to 0 than this is rounding.
ZERO = 1e-6
# So is that of equal rewards below this part of the largest: eight times 1.2 have another mean in float32,
# and what remains is divided by an epsilon.
ROUNDED = 1e-2
# A group is amplified where a difference of rewards comes out this many times as large, and is 1 or more.
GAIN = 100.0

OF_GROUPS = {
    "singleton": "groups of one completion",
    "unscored": "groups with a reward that is no finite number",
    "flat": "groups of two and more rewards that are all equal",
    "silenced": "groups whose rewards differ and whose advantages do not",
    "unadvised": "groups in which a completion with a reward in the loss has no advantage",
    "nan_advantage": "groups in which the trainer computed an advantage that is NaN or infinite",
    "left_out": "groups of which no completion enters the loss: masked, removed or without a trained token",
    "scattered": "groups whose completions are spread over several places of the log",
    "dead": "groups that teach nothing: flat without credit, silenced, left out, or with a NaN advantage",
    "flat_credit": "flat groups with an advantage that is more than rounding",
    "flat_differing": "flat groups whose advantages differ by more than rounding",
    "flat_rounding": "flat groups whose advantage is the rounding of equal rewards",
    "lone_credit": "singletons with an advantage other than 0",
    "merged": "groups in which two different rewards get one advantage",
    "reversed": "groups in which a higher reward gets a lower advantage",
    "repeated": "groups in which a response occurs more than once",
    "disagreeing": "groups in which equal responses get different rewards",
    "amplified": "groups whose advantages differ by 1 or more and by 100 times as much as their rewards",
}
# Counted where there are any: programs are known of few logs.
COPIED = {"copied": "dead groups whose completions are all one program, or one text"}


@dataclass(frozen=True)
class GroupFlags:
    """Of N groups, (N,) each: ranges of finite rewards and advantages (NaN without any), and ``flags``.

    ``gain`` is advantage range over the range of the rewards that have one, NaN where these do not differ.
    ``taught`` (R,) are the completions in the loss with an advantage other than 0 and than the rounding of
    equal rewards, of steps in which no advantage is NaN: one makes the loss of its whole step NaN.
    """

    reward_range: Floats
    advantage_range: Floats
    gain: Floats
    largest: Floats
    flags: Mapping[str, Bools]
    taught: Bools

    @property
    def tied(self) -> Bools:
        """(N,): flat groups that teach nothing."""
        return self.flags["flat"] & ~self.flags["flat_credit"]


def group_flags(groups: RewardGroups, advantage: Floats, flat_gain: float = 0.0) -> GroupFlags:
    """The facts of each group under advantages (R,), which may be NaN.

    ``flat_gain`` is what the normalizer that made them multiplies the rounding of equal rewards by.
    """
    low, high = limits(groups, groups.reward)
    least, most = limits(groups, advantage)
    answered = np.isfinite(advantage)
    answered_low, answered_high = low, high
    if not answered.all():
        answered_low, answered_high = limits(groups, np.where(answered, groups.reward, np.nan))
    with np.errstate(invalid="ignore", over="ignore"):
        reward_range, advantage_range = high - low, most - least
        compared = answered_high - answered_low
        gain = np.divide(advantage_range, compared, out=np.full(len(low), np.nan), where=compared > 0)
    largest = np.fmax(np.abs(least), np.abs(most))
    merged, reversed_ = _order_kept(groups, advantage, largest)
    starts, alone = groups.offsets[:-1], groups.sizes == 1
    scored = np.add.reduceat(groups.scored.astype(np.int64), starts)
    flat = (scored > 1) & (reward_range == 0)
    silenced = (compared > 0) & (advantage_range == 0)
    # Up to where the advantage of equal rewards is rounding, by the largest ones of the other groups.
    others = largest[~flat & np.isfinite(largest)]
    limit = max(ZERO, ROUNDED * float(others.max() if len(others) else 1.0))
    slack = np.maximum(limit, flat_rounding(groups, flat_gain))
    credited = largest > np.where(flat, slack, ZERO)
    broken = np.logical_or.reduceat(groups.no_number, starts)
    left_out = ~np.logical_or.reduceat(groups.in_loss, starts)
    flags = {
        "singleton": alone,
        "unscored": np.logical_or.reduceat(~groups.scored, starts),
        "flat": flat,
        "silenced": silenced,
        "dead": (flat & ~credited) | silenced | broken | left_out,
        "flat_credit": flat & credited,
        "flat_differing": flat & (advantage_range > slack),
        "flat_rounding": flat & ~credited & (largest > ZERO),
        "lone_credit": alone & (largest > ZERO),
        "unadvised": np.logical_or.reduceat(groups.scored & groups.in_loss & ~groups.has_advantage, starts),
        "nan_advantage": broken,
        "left_out": left_out,
        "scattered": _scattered(groups),
        "merged": merged,
        "reversed": reversed_,
        **repeat_flags(groups),
        "amplified": (gain >= GAIN) & (advantage_range >= 1),
    }
    teaches = credited & ~_in_broken_steps(groups, broken)
    taught = (np.abs(advantage) > ZERO) & teaches[groups.group] & groups.in_loss
    return GroupFlags(reward_range, advantage_range, gain, largest, flags, taught)


def flat_rounding(groups: RewardGroups, flat_gain: float) -> Floats:
    """(N,): what the rounding of a group's equal rewards may make of an advantage; no quotient is above 1."""
    return np.minimum(FLOAT32 * flat_gain * reward_size(groups), 1.0)


def reward_size(groups: RewardGroups) -> Floats:
    """(N,): the largest finite reward of each group, without its sign."""
    size: Floats = np.maximum.reduceat(
        np.where(np.isfinite(groups.reward), np.abs(groups.reward), 0.0), groups.offsets[:-1]
    )
    return size


def _in_broken_steps(groups: RewardGroups, broken: Bools) -> Bools:
    """(N,): groups of a step in which one is broken; where no step is logged, the broken ones."""
    if not broken.any():
        return broken
    spoilt = broken.copy()
    for first, end in spans(groups):
        spoilt[first:end] |= groups.step[first] != UNKNOWN and broken[first:end].any()
    return spoilt


def _scattered(groups: RewardGroups) -> Bools:
    """(N,): groups between whose rows one of another group of the batch stands."""
    if (np.diff(groups.position) > 0).all():
        return np.zeros(len(groups.step), dtype=np.bool_)
    file = np.zeros_like(groups.position) if groups.file is None else groups.file.code
    order = np.lexsort((groups.group, groups.position, file))
    group = groups.group[order]
    begins = group[np.flatnonzero(np.diff(group, prepend=-1))]
    return np.bincount(begins, minlength=len(groups.step)) > 1


def limits(groups: RewardGroups, values: Floats) -> tuple[Floats, Floats]:
    """Least and greatest finite value of each group, (N,) each; NaN without one."""
    finite = np.where(np.isfinite(values), values, np.nan)
    starts = groups.offsets[:-1]
    return np.fmin.reduceat(finite, starts), np.fmax.reduceat(finite, starts)


def _order_kept(groups: RewardGroups, advantage: Floats, largest: Floats) -> tuple[Bools, Bools]:
    """Which groups merge and which reverse neighbouring rewards.

    Sorted by reward, then advantage, a reversal anywhere shows between neighbours.
    """
    order = sorted_within(groups, groups.reward, advantage)
    known = groups.scored & np.isfinite(advantage)
    if not known.all():
        order = order[known[order]]
    group, reward, change = groups.group[order], groups.reward[order], np.diff(advantage[order])
    where = group[1:]
    higher = (where == group[:-1]) & (reward[1:] > reward[:-1])
    flags = np.zeros((2, len(groups.step)), dtype=np.bool_)
    flags[0, where[higher & (change == 0)]] = True
    flags[1, where[higher & (change < -ZERO * largest[where])]] = True
    return flags[0], flags[1]


OF_COMPLETIONS = {
    "compared": "candidates with a score to compare with",
    "improved": "candidates better than what they are compared with",
    "admitted": "candidates that the search kept",
    "admitted_no_better": "candidates kept that are no better than what they are compared with",
    "improved_not_admitted": "candidates that are better and were not kept",
    "doubled": "completions equal to an earlier one of their group in all that is read of them",
    "seen_before": "candidates whose text the log has earlier",
    "failed": "candidates whose evaluation ended in error, timeout or failure",
    "failed_and_scored": "failed candidates with a score above 0",
    "failed_and_improved": "failed candidates that count as an improvement",
    "failed_and_admitted": "failed candidates that the search kept",
}
_FAILED = ("timeout", "error", "failed", "incorrect", "runtime_failure", "invalid")


def candidate_flags(groups: RewardGroups) -> dict[str, Bools]:
    """(R,) each, by the names of MEANING."""
    # An infinite score is compared, as the search compares it.
    compared, better = ~np.isnan(groups.improvement), groups.improvement > 0
    kept, dropped = groups.admitted == 1, groups.admitted == 0
    ends = np.array([name.startswith(_FAILED) for name in groups.status.names], dtype=np.bool_)
    failed = ends[groups.status.code]
    return {
        "compared": compared,
        "improved": better,
        "admitted": kept,
        "admitted_no_better": kept & compared & ~better,
        "improved_not_admitted": dropped & better,
        "doubled": doubled_flags(groups),
        "failed": failed,
        "failed_and_scored": failed & (groups.reward > 0),
        "failed_and_improved": failed & better,
        "failed_and_admitted": failed & kept,
    }
