"""Whether other groups than the log names explain its advantages: by prompt, or by the rows of a step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from search_to_signal.audit.group_flags import ZERO
from search_to_signal.audit.groups import Integers, RewardGroups, sorted_within
from search_to_signal.audit.steps import ROWS, part, spans

# Rows of the log that are tried, the largest group, and the groupings that entries are applied to.
_ROWS, _LARGEST, _MOST = 4_096, 128, 12
BY_PROMPT = "completions of one prompt"
TOGETHER = "rows that follow each other"
APART = "rows at equal distances"


@dataclass(frozen=True)
class Regrouping:
    """Groups of ``size`` rows (0: of any size), which are ``how``, and the entry that explains them."""

    how: str
    size: int
    normalizer: str


def regrouping(groups: RewardGroups, explaining: Callable[[RewardGroups], str | None]) -> Regrouping | None:
    """The first other grouping of the first steps under which an entry gives every logged advantage.

    ``explaining`` names that entry.
    """
    bounds = [end for _, end in spans(groups) if groups.offsets[end] <= _ROWS]
    if not bounds:
        return None
    tried = part(groups, 0, bounds[-1])
    made = ((how, size, _regrouped(tried, order, sizes)) for how, size, order, sizes in _candidates(tried))
    ordered = (one for one in made if _ordered(one[2]))
    for how, size, other in islice(ordered, _MOST):
        if (name := explaining(other)) is not None:
            return Regrouping(how, size, name)
    return None


def _candidates(groups: RewardGroups) -> Iterator[tuple[str, int, Integers, Integers]]:
    """Each grouping, its size, the rows in an order in which groups are together, and the sizes of groups."""
    if groups.prompt_id.all():
        keys = np.stack([groups.step.astype(np.uint64), groups.prompt_id])
        prompt = np.unique(keys, axis=1, return_inverse=True)[1].ravel()[groups.group]
        yield BY_PROMPT, 0, np.argsort(prompt, kind="stable"), np.bincount(prompt)
    bounds = [slice(groups.offsets[first], groups.offsets[end]) for first, end in spans(groups)]
    file = np.zeros(len(groups.reward), dtype=np.int32) if groups.file is None else groups.file.code
    rows = [at.start + np.lexsort((groups.position[at], file[at])) for at in bounds]
    place = np.concatenate(rows)
    for size in range(2, _LARGEST + 1):
        if all(len(step) % size == 0 for step in rows):
            sizes = np.full(len(place) // size, size)
            yield TOGETHER, size, place, sizes
            yield APART, size, np.concatenate([step.reshape(size, -1).T.ravel() for step in rows]), sizes


def _regrouped(groups: RewardGroups, order: Integers, sizes: Integers) -> RewardGroups:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    firsts = groups.group[order[offsets[:-1]]]
    return replace(
        groups,
        offsets=offsets,
        step=groups.step[firsts],
        sampling=None if groups.sampling is None else groups.sampling[firsts],
        file=None if groups.file is None else replace(groups.file, code=groups.file.code[order]),
        name=(),
        prompt=(),
        prompt_id=np.zeros(len(sizes), dtype=np.uint64),
        label=replace(groups.label, code=groups.label.code[order]),
        status=replace(groups.status, code=groups.status.code[order]),
        components={name: values[order] for name, values in groups.components.items()},
        metrics={},
        **{name: getattr(groups, name)[order] for name in ROWS},
    )


def _ordered(groups: RewardGroups) -> bool:
    """Whether no higher reward of a group has a lower advantage, and equal ones have equal advantages."""
    order = sorted_within(groups, groups.reward, groups.advantage)
    within = groups.group[order][1:] == groups.group[order][:-1]
    reward, advantage = np.diff(groups.reward[order])[within], np.diff(groups.advantage[order])[within]
    slack = ZERO * max(1.0, float(np.abs(groups.advantage).max(initial=0.0)))
    return bool((advantage >= -slack).all() and (np.abs(advantage[reward == 0]) <= slack).all())
