"""Responses that occur more than once: within a group, and, of searched candidates, in the whole log."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.groups import Floats, RewardGroups, sorted_within
from search_to_signal.numerics import added

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class RepeatSums:
    """Of completions whose response is logged: those equal to an earlier one of their group, and the sum of
    [A]_+ over them and over all."""

    completions: int = 0
    repeats: int = 0
    repeat_mass: float = 0.0
    mass: float = 0.0

    def __add__(self, more: "RepeatSums") -> "RepeatSums":
        return added(self, more)

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
        equal &= _equal(column[later], column[earlier])
    flags[later[equal]] = True
    return flags


def _equal(one: NDArray[Any], other: NDArray[Any]) -> Bools:
    """Where two columns are equal; what is missing in both is."""
    same: Bools = (one == other) | ((one != one) & (other != other))
    return same


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
