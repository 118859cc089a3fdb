"""Rows of the neutral form as columns, many at once: how a long log is read fast and with flat memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.groups import Floats, Names, RewardGroups, excerpt
from search_to_signal.audit.importers.rows import digests, refuse_many_names, unscored
from search_to_signal.errors import RecordError

Table = dict[str, NDArray[Any]]
# Columns of a table beside those of every row: a part of the reward, its weight, and whether a row has it.
_VALUE, _WEIGHT, _PRESENT = "value of ", "weight of ", "presence of "
_ABSENT = {_VALUE: np.nan, _WEIGHT: np.nan, _PRESENT: False}


@dataclass
class Codes:
    """Texts by number, in order of first appearance in a log."""

    known: dict[str, int] = field(default_factory=dict)

    def of(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """(R,): the number of each text; new ones are added."""
        known, met = self.known, dict.fromkeys(texts)
        for text in met:
            known.setdefault(text, len(known))
        if len(met) == 1:
            return np.full(len(texts), known[texts[0]], dtype=np.int32)
        return np.fromiter(map(known.__getitem__, texts), np.int32, len(texts))


def table_of(
    rows: Sequence[Any], classes: Sequence[str], positions: Sequence[int], labels: Codes, statuses: Codes
) -> Table:
    """Columns of rows with the fields of Rollout that were read together; the first is said not to begin."""
    groups = [row.group for row in rows]
    step = np.array([row.step for row in rows], dtype=np.int64)
    begins = _changes(step, groups)
    return {
        "begins": begins,
        "position": _positions(positions),
        "step": step,
        "reward": np.array([row.reward for row in rows], dtype=np.float64),
        "advantage": np.array([row.advantage for row in rows], dtype=np.float64),
        "tokens": np.array([row.tokens for row in rows], dtype=np.int64),
        "response": digests([row.response for row in rows]),
        "label": labels.of(classes),
        "status": statuses.of([row.status or "" for row in rows]),
        "name": _at_beginnings(begins, groups),
        "prompt": _at_beginnings(begins, [row.prompt for row in rows], _excerpt),
        **_parts_of([row.components or {} for row in rows], [row.weights or {} for row in rows]),
    }


def beginnings(steps: Sequence[int], groups: Sequence[Any]) -> list[int]:
    """The rows at which a step or a group begins, the first among them."""
    return [0, *np.flatnonzero(_changes(np.array(steps, dtype=np.int64), groups)).tolist()]


def _changes(step: NDArray[np.int64], groups: Sequence[Any]) -> NDArray[np.bool_]:
    """(R,): whether step or group are others than those of the row before; the first row is said not to."""
    changes = np.fromiter(chain([False], map(ne, groups[1:], groups)), np.bool_, len(groups))
    changes |= np.diff(step, prepend=step[:1]) != 0
    return changes


def _at_beginnings(
    begins: NDArray[np.bool_], values: Sequence[Any], made: Callable[[Any], str] = str
) -> NDArray[Any]:
    """(R,) texts where a group begins, and of the first row, which may begin one; empty elsewhere."""
    found = np.full(len(values), "", dtype=object)
    rows = [0, *np.flatnonzero(begins).tolist()]
    found[rows] = [made(values[row]) for row in rows]
    return found


def _excerpt(prompt: Any) -> str:
    return "" if prompt is None else excerpt(prompt)


def _positions(given: Sequence[int]) -> NDArray[np.int64]:
    if isinstance(given, range):
        return np.arange(given.start, given.stop, dtype=np.int64)
    return np.array(given, dtype=np.int64)


def _parts_of(parts: Sequence[Mapping[str, Any]], weights: Sequence[Mapping[str, Any]]) -> Table:
    found: Table = {}
    for name in dict.fromkeys(chain.from_iterable(parts)):
        present = np.fromiter((name in part for part in parts), np.bool_, len(parts))
        found[_PRESENT + name] = present
        found[_VALUE + name] = np.array([part.get(name) for part in parts], dtype=np.float64)
        found[_WEIGHT + name] = np.array([weight.get(name, 1.0) for weight in weights], dtype=np.float64)
    return found


def assembled(
    source: str, tables: Iterable[Table], limit: int, labels: Codes, statuses: Codes
) -> Iterator[RewardGroups]:
    """Batches of at most ``limit`` rows, cut where groups begin; a larger group is a batch of its own.

    Raises RecordError where there is no row at all.
    """
    held: list[Table] = []
    count, seen = 0, False
    for table in tables:
        held.append(table)
        count += len(table["step"])
        if count > limit:
            whole = _joined(held)
            for cut in _cuts(whole["begins"], limit):
                yield _batch(source, _rows(whole, cut), labels, statuses)
                count, seen = len(whole["step"]) - cut.stop, True
            held = [_rows(whole, slice(len(whole["step"]) - count, None))]
    if count:
        yield _batch(source, _joined(held), labels, statuses)
    elif not seen:
        raise RecordError(
            f"{source} holds no groups: it has no rollout in it; give a log that was written to"
        )


def _cuts(begins: NDArray[np.bool_], limit: int) -> Iterator[slice]:
    """Rows of whole groups, at most ``limit`` where a group allows; what may still grow is left over."""
    starts = np.flatnonzero(begins)
    first = 0
    while len(begins) - first > limit:
        later = starts[starts > first]
        if not len(later):
            return
        fitting = later[later - first <= limit]
        end = int(fitting[-1] if len(fitting) else later[0])
        yield slice(first, end)
        first = end


def _joined(tables: Sequence[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: np.concatenate([_column(table, name) for table in tables]) for name in names}


def _column(table: Table, name: str) -> NDArray[Any]:
    if name in table:
        return table[name]
    absent = next(value for kind, value in _ABSENT.items() if name.startswith(kind))
    return np.full(len(table["step"]), absent)


def _rows(table: Table, rows: slice) -> Table:
    return {name: column[rows] for name, column in table.items()}


def _batch(source: str, table: Table, labels: Codes, statuses: Codes) -> RewardGroups:
    rows = len(table["step"])
    starts = np.unique(np.append(0, np.flatnonzero(table["begins"])))
    components, weights = _parts(source, table)
    return RewardGroups(
        source=source,
        offsets=np.append(starts, rows).astype(np.int64),
        step=table["step"][starts],
        position=table["position"],
        reward=table["reward"],
        advantage=table["advantage"],
        tokens=table["tokens"],
        response=table["response"],
        label=Names(table["label"], tuple(labels.known)),
        status=Names(table["status"], tuple(statuses.known)),
        improvement=np.full(rows, np.nan),
        admitted=np.full(rows, -1, dtype=np.int8),
        components=components,
        name=tuple(table["name"][starts].tolist()),
        prompt=tuple(table["prompt"][starts].tolist()),
        weights=weights,
        assumptions=unscored(table["reward"]),
    )


def _parts(source: str, table: Table) -> tuple[Mapping[str, Floats], Mapping[str, float]]:
    """Components and their weights; one whose weight changes is weighted already, and has 1."""
    names = [name.removeprefix(_VALUE) for name in table if name.startswith(_VALUE)]
    names = [name for name in names if table[_PRESENT + name].any()]
    refuse_many_names(source, len(names), len(table["step"]))
    values: dict[str, Floats] = {}
    weights: dict[str, float] = {}
    for name in names:
        value, weight = table[_VALUE + name], table[_WEIGHT + name]
        given = weight[table[_PRESENT + name]]
        same = bool((given == given[0]).all())
        values[name] = np.asarray(value if same else value * weight, dtype=np.float64)
        weights[name] = float(given[0]) if same else 1.0
    return values, weights
