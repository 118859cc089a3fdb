"""Batches cut where steps end: some normalizers look at every group of a step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from search_to_signal.audit.groups import UNKNOWN, Floats, Integers, Names, RewardGroups, named

ROWS = (
    *("position", "reward", "advantage", "has_advantage", "masked", "tokens", "response"),
    *("improvement", "admitted"),
)


def whole_steps(batches: Iterable[RewardGroups]) -> Iterator[RewardGroups]:
    """The same groups, with no step in two batches of one source; held in memory is one step and a batch.

    A step that was sampled again is a step of its own.

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
        start = spans(batch)[-1][0]
        if start:
            yield part(batch, 0, start)
        held = part(batch, start, len(batch.step))
    if held is not None:
        yield held


def spans(groups: RewardGroups) -> list[tuple[int, int]]:
    """First group and end of each run of groups of one step and sampling."""
    changes = np.diff(groups.step) != 0
    if groups.sampling is not None:
        changes |= np.diff(groups.sampling) != 0
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(groups.step)]
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
        prompt_id=groups.prompt_id[first:end],
        sampling=None if groups.sampling is None else groups.sampling[first:end],
        file=None if groups.file is None else Names(groups.file.code[rows], groups.file.names),
        assumptions=groups.assumptions if first == 0 else (),
        **{name: getattr(groups, name)[rows] for name in ROWS},
    )


def regrouped(groups: RewardGroups, members: Sequence[Sequence[int]]) -> RewardGroups:
    """Groups in another order, each made of the rows of one or several."""
    flat = np.concatenate([np.array(numbers, dtype=np.int64) for numbers in members])
    sizes = groups.sizes[flat]
    ends = np.cumsum(sizes)
    rows = np.repeat(groups.offsets[flat] - ends + sizes, sizes) + np.arange(ends[-1])
    firsts = np.array([numbers[0] for numbers in members], dtype=np.int64)
    counts = np.cumsum([len(numbers) for numbers in members])
    return replace(
        groups,
        offsets=np.append(0, ends[counts - 1]),
        step=groups.step[firsts],
        label=Names(groups.label.code[rows], groups.label.names),
        status=Names(groups.status.code[rows], groups.status.names),
        components={name: values[rows] for name, values in groups.components.items()},
        metrics={name: values[rows] for name, values in groups.metrics.items()},
        name=tuple(groups.name[first] for first in firsts.tolist()) if groups.name else (),
        prompt=tuple(groups.prompt[first] for first in firsts.tolist()) if groups.prompt else (),
        prompt_id=groups.prompt_id[firsts],
        sampling=None if groups.sampling is None else groups.sampling[firsts],
        file=None if groups.file is None else Names(groups.file.code[rows], groups.file.names),
        **{name: getattr(groups, name)[rows] for name in ROWS},
    )


def joined(first_part: RewardGroups, second_part: RewardGroups) -> RewardGroups:
    """The groups of both, in order, under the source and weights of the first."""
    counts = (len(first_part.reward), len(second_part.reward))
    return replace(
        first_part,
        offsets=np.concatenate([first_part.offsets, second_part.offsets[1:] + first_part.offsets[-1]]),
        step=np.concatenate([first_part.step, second_part.step]),
        label=_names(first_part.label, second_part.label),
        status=_names(first_part.status, second_part.status),
        components=_table(first_part.components, second_part.components, counts),
        metrics=_table(first_part.metrics, second_part.metrics, counts),
        weights={**second_part.weights, **first_part.weights},
        name=_texts(first_part.name, second_part.name, (len(first_part.step), len(second_part.step))),
        prompt=_texts(first_part.prompt, second_part.prompt, (len(first_part.step), len(second_part.step))),
        prompt_id=np.concatenate([first_part.prompt_id, second_part.prompt_id]),
        sampling=_samplings(first_part, second_part),
        file=_files(first_part, second_part),
        assumptions=(*first_part.assumptions, *second_part.assumptions),
        **{name: np.concatenate([getattr(first_part, name), getattr(second_part, name)]) for name in ROWS},
    )


def _joins(first_part: RewardGroups, second_part: RewardGroups) -> bool:
    """Whether a step that is held can go on, or be audited with what comes, since it is of the same kind."""
    same = first_part.source == second_part.source and dict(first_part.weights) == dict(second_part.weights)
    return same and bool(first_part.step[-1] != UNKNOWN)


def _samplings(*parts: RewardGroups) -> Integers | None:
    if all(part.sampling is None for part in parts):
        return None
    given = (np.zeros_like(part.step) if part.sampling is None else part.sampling for part in parts)
    return np.concatenate([*given])


def _files(first_part: RewardGroups, second_part: RewardGroups) -> Names | None:
    if first_part.source == second_part.source and first_part.file is second_part.file is None:
        return None
    parts = (first_part, second_part)
    return _names(*(part.file or named([part.source] * len(part.reward)) for part in parts))


def _names(first_part: Names, second_part: Names) -> Names:
    if first_part.names == second_part.names[: len(first_part.names)]:
        return Names(np.concatenate([first_part.code, second_part.code]), second_part.names)
    names = tuple(dict.fromkeys((*first_part.names, *second_part.names)))
    places = {name: place for place, name in enumerate(names)}
    code = np.array([places[name] for name in second_part.names], dtype=np.int32)
    return Names(np.concatenate([first_part.code, code[second_part.code]]), names)


def _texts(
    first_part: tuple[str, ...], second_part: tuple[str, ...], counts: tuple[int, int]
) -> tuple[str, ...]:
    if not first_part and not second_part:
        return ()
    return (*(first_part or ("",) * counts[0]), *(second_part or ("",) * counts[1]))


def _table(
    first_part: Mapping[str, Floats], second_part: Mapping[str, Floats], counts: tuple[int, int]
) -> dict[str, Floats]:
    absent = [np.full(count, np.nan) for count in counts]
    names = dict.fromkeys((*first_part, *second_part))
    return {
        name: np.concatenate([first_part.get(name, absent[0]), second_part.get(name, absent[1])])
        for name in names
    }
