"""Whether other groups than the log's explain its advantages: rows that follow each other, or every n-th."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from search_to_signal.audit.group_flags import ZERO
from search_to_signal.audit.groups import Integers, RewardGroups, sorted_within
from search_to_signal.audit.steps import ROWS, part, spans

# Rows of the log that are tried, and the largest group.
_ROWS, _LARGEST = 4_096, 128
HOW = {"together": "rows that follow each other", "apart": "rows that are the same distance apart"}


@dataclass(frozen=True)
class Regrouping:
    """Groups of ``size`` rows, taken as HOW says, under which ``normalizer`` gives every logged advantage."""

    how: str
    size: int
    normalizer: str


def regrouping(groups: RewardGroups, explaining: Callable[[RewardGroups], str | None]) -> Regrouping | None:
    """The first other grouping of the first steps that an entry explains; ``explaining`` names that entry."""
    bounds = [end for _, end in spans(groups) if groups.offsets[end] <= _ROWS]
    tried = part(groups, 0, bounds[-1] if bounds else len(groups.step))
    counts = {int(tried.offsets[end] - tried.offsets[first]) for first, end in spans(tried)}
    for size in range(2, _LARGEST + 1):
        if len(tried.reward) <= _ROWS and all(count % size == 0 for count in counts):
            for how in HOW:
                other = _regrouped(tried, size, how)
                if _ordered(other) and (name := explaining(other)) is not None:
                    return Regrouping(how, size, name)
    return None


def _regrouped(groups: RewardGroups, size: int, how: str) -> RewardGroups:
    order = np.concatenate(list(_orders(groups, size, how)))
    count = len(order) // size
    return replace(
        groups,
        offsets=np.arange(count + 1, dtype=np.int64) * size,
        step=groups.step[groups.group[order[::size]]],
        name=(),
        prompt=(),
        prompt_id=np.zeros(count, dtype=np.uint64),
        label=replace(groups.label, code=groups.label.code[order]),
        status=replace(groups.status, code=groups.status.code[order]),
        components={name: values[order] for name, values in groups.components.items()},
        metrics={},
        **{name: getattr(groups, name)[order] for name in ROWS},
    )


def _orders(groups: RewardGroups, size: int, how: str) -> Iterator[Integers]:
    """The rows of each step in an order in which each ``size`` of them are one group."""
    for first, end in spans(groups):
        rows = np.arange(groups.offsets[first], groups.offsets[end], dtype=np.int64)
        rows = rows[np.argsort(groups.position[rows], kind="stable")]
        yield rows if how == "together" else rows.reshape(size, -1).T.ravel()


def _ordered(groups: RewardGroups) -> bool:
    """Whether no higher reward of a group has a lower advantage, and equal ones have equal advantages."""
    order = sorted_within(groups, groups.reward, groups.advantage)
    within = groups.group[order][1:] == groups.group[order][:-1]
    reward, advantage = np.diff(groups.reward[order])[within], np.diff(groups.advantage[order])[within]
    slack = ZERO * max(1.0, float(np.abs(groups.advantage).max(initial=0.0)))
    return bool((advantage >= -slack).all() and (np.abs(advantage[reward == 0]) <= slack).all())
