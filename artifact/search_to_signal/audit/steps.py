"""Batches cut where steps end: some normalizers look at every group of a step."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from search_to_signal.audit.groups import UNKNOWN, Floats, Names, RewardGroups

_ROWS = ("position", "reward", "advantage", "tokens", "response", "improvement", "admitted")


def whole_steps(batches: Iterable[RewardGroups]) -> Iterator[RewardGroups]:
    """The same groups, with no step in two batches of one source; held in memory is one step and a batch.

    Groups without a step stay in the batches in which they came.
    """
    held: RewardGroups | None = None
    for batch in batches:
        if not len(batch.step):
            continue
        if held is not None and _joins(held, batch):
            batch = joined(held, batch)
        elif held is not None:
            yield held
        changes = np.flatnonzero(np.diff(batch.step))
        start = int(changes[-1]) + 1 if len(changes) else 0
        if start:
            yield part(batch, 0, start)
        held = part(batch, start, len(batch.step))
    if held is not None:
        yield held


def spans(groups: RewardGroups) -> list[tuple[int, int]]:
    """First group and end of each run of groups of one step."""
    changes = np.flatnonzero(np.diff(groups.step)) + 1
    bounds = [0, *changes.tolist(), len(groups.step)]
    return list(pairwise(bounds))


def part(groups: RewardGroups, first: int, end: int) -> RewardGroups:
    """Groups ``first`` to ``end``; what was assumed stays with the part that begins the batch."""
    if (first, end) == (0, len(groups.step)):
        return groups
    rows = slice(int(groups.offsets[first]), int(groups.offsets[end]))
    return replace(
        groups,
        offsets=groups.offsets[first : end + 1] - groups.offsets[first],
        step=groups.step[first:end],
        label=Names(groups.label.code[rows], groups.label.names),
        status=Names(groups.status.code[rows], groups.status.names),
        components={name: values[rows] for name, values in groups.components.items()},
        metrics={name: values[rows] for name, values in groups.metrics.items()},
        name=groups.name[first:end],
        prompt=groups.prompt[first:end],
        assumptions=groups.assumptions if first == 0 else (),
        **{name: getattr(groups, name)[rows] for name in _ROWS},
    )


def joined(one: RewardGroups, other: RewardGroups) -> RewardGroups:
    """The groups of both, in order, under the source and weights of the first."""
    counts = (len(one.reward), len(other.reward))
    return replace(
        one,
        offsets=np.concatenate([one.offsets, other.offsets[1:] + one.offsets[-1]]),
        step=np.concatenate([one.step, other.step]),
        label=_names(one.label, other.label),
        status=_names(one.status, other.status),
        components=_table(one.components, other.components, counts),
        metrics=_table(one.metrics, other.metrics, counts),
        weights={**other.weights, **one.weights},
        name=_texts(one.name, other.name, (len(one.step), len(other.step))),
        prompt=_texts(one.prompt, other.prompt, (len(one.step), len(other.step))),
        assumptions=(*one.assumptions, *other.assumptions),
        **{name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in _ROWS},
    )


def _joins(one: RewardGroups, other: RewardGroups) -> bool:
    """Whether a step that is held can go on, or be audited with what comes, since it is of the same kind."""
    same = one.source == other.source and dict(one.weights) == dict(other.weights)
    return same and bool(one.step[-1] != UNKNOWN)


def _names(one: Names, other: Names) -> Names:
    if one.names == other.names[: len(one.names)]:
        return Names(np.concatenate([one.code, other.code]), other.names)
    names = tuple(dict.fromkeys((*one.names, *other.names)))
    places = {name: place for place, name in enumerate(names)}
    code = np.array([places[name] for name in other.names], dtype=np.int32)
    return Names(np.concatenate([one.code, code[other.code]]), names)


def _texts(one: tuple[str, ...], other: tuple[str, ...], counts: tuple[int, int]) -> tuple[str, ...]:
    if not one and not other:
        return ()
    return (*(one or ("",) * counts[0]), *(other or ("",) * counts[1]))


def _table(
    one: Mapping[str, Floats], other: Mapping[str, Floats], counts: tuple[int, int]
) -> dict[str, Floats]:
    absent = [np.full(count, np.nan) for count in counts]
    names = dict.fromkeys((*one, *other))
    return {name: np.concatenate([one.get(name, absent[0]), other.get(name, absent[1])]) for name in names}
