"""Rows of one group that stand in several places of a log, gathered with no more held than has to be."""

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from search_to_signal.audit.groups import UNKNOWN
from search_to_signal.audit.importers.rows import Group, RolloutRow, digest
from search_to_signal.errors import RecordError

# Step and group of a row; ``Row.group`` holds both where groups are gathered by them.
Key = tuple[int, Hashable]


@dataclass(frozen=True)
class Runs:
    """Of a log: how often each group, by ``_stamp``, begins again, for those that do; and so each step."""

    groups: Counter[int]
    steps: Counter[int]

    @property
    def whole(self) -> bool:
        """Rows of one group stand together everywhere, and so do those of one step."""
        return not self.groups and not self.steps


class ScatteredGroupsError(RecordError):
    """A group or step begins again in a log whose rows were declared to stand together."""


class Beginnings:
    """Groups and steps of a log as they begin, 8 bytes each."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._hashes = array("q")
        self._checked = 0
        self._step = UNKNOWN

    def add(self, keys: Sequence[Key]) -> None:
        """The next groups; raises ScatteredGroupsError once it is seen that one of them began before."""
        self._hashes.extend(map(hash, keys))
        for step, _ in groupby(step for step, _ in keys):
            if step not in (self._step, UNKNOWN):
                self._hashes.append(hash((step,)))
                self._step = step
        # Sorting whenever they have doubled takes no longer than sorting twice.
        if len(self._hashes) > 2 * self._checked:
            self.check()

    def check(self) -> None:
        """Raises ScatteredGroupsError where a group or a step began twice, or two hashes are equal."""
        ordered = np.sort(np.frombuffer(self._hashes, dtype=np.int64))
        self._checked = len(ordered)
        if (ordered[1:] == ordered[:-1]).any():
            raise ScatteredGroupsError(
                f"{self._source}: rows of a group or step stand in several places: read it without `together`"
            )


def by_id(keys: Iterable[Key], rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """Rows of one group stand anywhere in the log; ``keys`` are the step and group of each row, read before.

    A group is given when its last row has come, so what is held is the groups that are open, and 16 bytes
    for every run of rows of one group. Where rows of a step do not stand together either, all groups are
    held, and given step by step.
    """
    return joined(runs_of(keys), rows)


def joined(runs: Runs, rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """As ``by_id``, where the runs were counted before."""
    groups = _closed(rows, runs.groups)
    if runs.steps:
        order: dict[int, list[Group]] = {}
        for group in groups:
            order.setdefault(group[0].step, []).append(group)
        groups = (group for together in order.values() for group in together)
    return groups


def _closed(rows: Iterable[RolloutRow], left: Counter[int]) -> Iterator[Group]:
    """Groups as their last runs come; ``left`` counts the runs of those with several, by ``_stamp``."""
    waiting: dict[Hashable, list[RolloutRow]] = {}
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
        samplings: list[dict[Hashable, RolloutRow]] = []
        for row in group:
            free = next((sampling for sampling in samplings if row.member not in sampling), None)
            if free is None:
                samplings.append(free := {})
            free[row.member] = row
        yield from (list(sampling.values()) for sampling in samplings)


def runs_of(keys: Iterable[Key]) -> Runs:
    """What is read of a log before its rows: where groups and steps begin again."""
    groups, steps, last = array("Q"), array("Q"), UNKNOWN
    for (step, group), _ in groupby(keys):
        groups.append(_stamp((step, group)))
        if step not in (last, UNKNOWN):
            steps.append(_stamp(step))
            last = step
    return Runs(_more_than_once(groups), _more_than_once(steps))


def _more_than_once(stamps: "array[int]") -> Counter[int]:
    distinct, counts = np.unique(np.frombuffer(stamps, dtype=np.uint64), return_counts=True)
    several = counts > 1
    return Counter(dict(zip(distinct[several].tolist(), counts[several].tolist(), strict=True)))


def _stamp(key: Hashable) -> int:
    """64 bits for a key. Its text is hashed, since Python's hashes of small numbers are not spread."""
    return digest(repr(key))


def gathered(rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """Rows of one group stand anywhere within their step: the numbers of one step are held, not its texts."""
    for _, members in groupby(rows, key=lambda row: row.step):
        groups: dict[Hashable, list[RolloutRow]] = {}
        for row in members:
            groups.setdefault(row.group, []).append(row)
        yield from groups.values()
