"""Rows of one group that stand in several places of a log, gathered with no more held than has to be.

A run that was resumed into its own log samples steps again, which the order of what it wrote shows: its steps
fall back, and the groups or the number of rows of the step that comes again are those of a whole step.
Writers in turn fall back as well, and write what others left out.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from statistics import median
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from search_to_signal.audit.groups import UNKNOWN, Assumption
from search_to_signal.audit.importers.rows import Group, Key, RolloutRow, digest
from search_to_signal.base.errors import RecordError

# Rows of each group of a step.
_Rows = Counter[int]


def restarts_of(groups: Sequence[int], steps: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """The runs of rows, by number, that sample a step again, with that step; given is group, step and size.

    A step that comes again is sampled again where most groups that it had come whole, or where it would have
    half as many rows again as a step has.
    """
    usual, step_rows = _usual(groups, sizes), _step_rows(steps, sizes)
    known = (step for step, _ in groupby(steps) if step != UNKNOWN)
    in_turn = sum(after < before for before, after in pairwise(known)) > len(set(steps))
    found: dict[int, int] = {}
    held: dict[int, _Rows] = {}
    last = UNKNOWN
    for step, numbers in _of_steps(steps):
        if step < last and step in held and not in_turn:
            rows = Counter[int]()
            for number in numbers:
                rows[groups[number]] += sizes[number]
            if _is_again(held[step], rows, usual, step_rows):
                found[numbers[0]] = step
                held = {earlier: had for earlier, had in held.items() if earlier < step}
        last = step if step != UNKNOWN else last
        for number in numbers:
            if sizes[number] == usual and groups[number] in held.get(step, ()):
                found[number] = step
                held.pop(step)
            held.setdefault(step, Counter())[groups[number]] += sizes[number]
    return found


def _is_again(before: _Rows, rows: _Rows, usual: int | None, step_rows: float | None) -> bool:
    shared = before.keys() & rows.keys()
    whole = [rows[one] == (usual or before[one]) > 1 for one in shared]
    if shared and 2 * sum(whole) >= len(shared):
        return True
    had, has = before.total(), rows.total()
    return step_rows is not None and 2 * has >= had and 2 * (had + has) > 3 * step_rows


def _usual(groups: Sequence[int], sizes: Sequence[int]) -> int | None:
    """The size of most groups whose rows stand together; None where it is 1, or most have another."""
    runs = Counter(groups)
    together = Counter(size for group, size in zip(groups, sizes, strict=True) if runs[group] == 1)
    size, count = max(together.items(), key=lambda item: item[1], default=(1, 0))
    return size if size > 1 and 2 * count >= together.total() else None


def _step_rows(steps: Sequence[int], sizes: Sequence[int]) -> float | None:
    """How many rows a step has whose rows stand together; None where there is no such step."""
    rows: dict[int, list[int]] = {}
    for step, numbers in _of_steps(steps):
        rows.setdefault(step, []).append(sum(sizes[number] for number in numbers))
    together = [counts[0] for step, counts in rows.items() if len(counts) == 1 and step != UNKNOWN]
    return median(together) if together else None


def _of_steps(steps: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    for step, numbers in groupby(range(len(steps)), key=steps.__getitem__):
        yield step, list(numbers)


@dataclass(frozen=True)
class Runs:
    """Of a log: how often each group, by ``_stamp``, begins again, for those that do; and so each step.

    ``restarts`` are the runs of rows, by number, with which a run that was resumed samples a step again, and
    these steps.
    """

    groups: Counter[int]
    steps: Counter[int]
    restarts: dict[int, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Rows of one group stand together everywhere, and so do those of one step."""
        return not self.groups and not self.steps

    def notes(self) -> Iterator[Assumption]:
        """That a run was resumed, if one was; asked once there are rows."""
        if self.restarts:
            step = next(iter(self.restarts.values()))
            known = f"step {step} comes again after later ones"
            yield sampled_again(known if step != UNKNOWN else "a whole group comes again", len(self.restarts))


def sampled_again(says: str, times: int) -> Assumption:
    """That a run went back, as ``says`` tells of the first time."""
    says += ", as where a run was resumed: what it sampled again counts as a step of its own"
    return Assumption("sampled_again", says, {"times": times})


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
                f"{self._source}: rows of a group or step are spread over several places: read it "
                "without `together`"
            )


def joined(runs: Runs, rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """Rows of one group stand anywhere in the log, whose ``runs`` were counted before.

    A group is given when its last row has come, so what is held is the groups that are open, and 16 bytes
    for every run of rows of one group. Where rows of a step do not stand together either, all groups are
    held, and given step by step.
    """
    if runs.restarts:
        return _resumed(runs, rows)
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


def _resumed(runs: Runs, rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """Groups by sampling and step; a group whose rows all came before, responses too, was logged twice.

    Restarts that logged again without sampling are taken out of ``runs``.
    """
    order: dict[tuple[int, int], dict[Hashable, list[RolloutRow]]] = {}
    restarts = list(runs.restarts)
    for number, (key, members) in enumerate(groupby(rows, key=lambda row: row.group)):
        sampling = bisect_right(restarts, number)
        for row in members:
            groups = order.setdefault((sampling, row.step), {})
            groups.setdefault(key, []).append(structs.replace(row, sampling=sampling) if sampling else row)
    latest: dict[Hashable, list[RolloutRow]] = {}
    sampled: dict[int, set[int]] = {}
    for (sampling, step), groups in order.items():
        for key, group in groups.items():
            before = latest.setdefault(key, group)
            if before is not group and _told(before) == _told(group):
                before.extend(structs.replace(row, sampling=before[0].sampling) for row in group)
                group.clear()
            else:
                latest[key] = group
                sampled.setdefault(step, set()).add(sampling)
    again = set[int]().union(*(found - {min(found)} for found in sampled.values()))
    for sampling, start in enumerate(restarts, 1):
        if sampling not in again:
            runs.restarts.pop(start)
    yield from (group for groups in order.values() for group in groups.values() if group)


def _told(rows: Sequence[RolloutRow]) -> list[tuple[object, ...]]:
    """What is equal for rows that are logged twice; rows without a response are like no others."""
    return [(row.response or id(row), row.reward, repr(row.advantage), row.tokens) for row in rows]


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
    stamps, steps, sizes = array("Q"), array("q"), array("q")
    for key, members in groupby(keys):
        stamps.append(_stamp(key))
        steps.append(key[0])
        sizes.append(len(list(members)))
    groups = _more_than_once(np.frombuffer(stamps, dtype=np.uint64))
    known = np.frombuffer(steps, dtype=np.int64)
    known = known[known != UNKNOWN]
    again = _more_than_once(known[np.append(True, np.diff(known) != 0)[: len(known)]])
    if not groups and not again:
        return Runs(groups, again)
    return Runs(groups, again, restarts_of(stamps, steps, sizes))


def _more_than_once(values: NDArray[Any]) -> Counter[int]:
    distinct, counts = np.unique(values, return_counts=True)
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
