"""Rows of one group that stand in several places of a log, gathered with no more held than has to be."""

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby

import numpy as np

from search_to_signal.audit.groups import UNKNOWN
from search_to_signal.audit.importers.rows import Group, Row, digest
from search_to_signal.errors import RecordError

# Step and group of a row; ``Row.group`` holds both where groups are gathered by them.
Key = tuple[int, Hashable]


def by_id(keys: Iterable[Key], rows: Iterable[Row]) -> Iterator[Group]:
    """Rows of one group stand anywhere in the log; ``keys`` are the step and group of each row, read before.

    A group is given when its last row has come, so what is held is the groups that are open, and 16 bytes
    for every run of rows of one group. Where rows of a step do not stand together either, all groups are
    held, and given step by step.
    """
    groups, steps = _runs(keys)
    left = _more_than_once(groups)
    found = _closed(rows, left)
    if _more_than_once(steps):
        order: dict[int, list[Group]] = {}
        for group in found:
            order.setdefault(group[0].step, []).append(group)
        found = (group for together in order.values() for group in together)
    return found


def _closed(rows: Iterable[Row], left: Counter[int]) -> Iterator[Group]:
    """Groups as their last runs come; ``left`` counts the runs of those with several, by ``_stamp``."""
    waiting: dict[Hashable, list[Row]] = {}
    for key, members in groupby(rows, key=lambda row: row.group):
        stamp = _stamp(key)
        if stamp not in left:
            yield list(members)
            continue
        waiting.setdefault(key, []).extend(members)
        left[stamp] -= 1
        if not left[stamp]:
            yield waiting.pop(key)
    yield from waiting.values()


def until_damaged(keys: Iterable[Key]) -> Iterator[Key]:
    """Keys up to a record that cannot be read, which the rows are going to name when it is its turn."""
    with suppress(RecordError):
        yield from keys


def sampled_apart(groups: Iterable[Group]) -> Iterator[Group]:
    """Groups in which no ``member`` stands twice: a second one is of another sampling of the group."""
    for group in groups:
        if group[0].member is None:
            yield group
            continue
        samplings: list[dict[Hashable, Row]] = []
        for row in group:
            free = next((one for one in samplings if row.member not in one), None)
            if free is None:
                samplings.append(free := {})
            free[row.member] = row
        yield from (list(one.values()) for one in samplings)


def _runs(keys: Iterable[Key]) -> "tuple[array[int], array[int]]":
    """Stamps of the runs of groups, and of the runs of steps that are known."""
    groups, steps = array("Q"), array("Q")
    for (step, group), _ in groupby(keys):
        groups.append(_stamp((step, group)))
        mark = _stamp(step)
        if step != UNKNOWN and not (steps and steps[-1] == mark):
            steps.append(mark)
    return groups, steps


def _more_than_once(stamps: "array[int]") -> Counter[int]:
    found, counts = np.unique(np.frombuffer(stamps, dtype=np.uint64), return_counts=True)
    several = counts > 1
    return Counter(dict(zip(found[several].tolist(), counts[several].tolist(), strict=True)))


def _stamp(key: Hashable) -> int:
    """64 bits for a key, the same in every process."""
    return digest(repr(key))


def gathered(rows: Iterable[Row]) -> Iterator[Group]:
    """Rows of one group stand anywhere within their step: the numbers of one step are held, not its texts."""
    for _, members in groupby(rows, key=lambda row: row.step):
        groups: dict[Hashable, list[Row]] = {}
        for row in members:
            groups.setdefault(row.group, []).append(row)
        yield from groups.values()
