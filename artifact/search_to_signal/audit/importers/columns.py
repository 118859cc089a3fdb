"""Rows of the neutral form as columns, many at once: how a long log is read fast and with flat memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.groups import UNKNOWN, Floats, Integers, Names, RewardGroups
from search_to_signal.audit.importers.gathering import Key
from search_to_signal.audit.importers.prompts import Prompts
from search_to_signal.audit.importers.rows import NAN, digests, refuse_many_names, unscored
from search_to_signal.errors import RecordError

Table = dict[str, NDArray[Any]]
# Further columns of a table: a part of the reward, its weight, and whether a row has it.
_VALUE, _WEIGHT, _PRESENT = "value of ", "weight of ", "presence of "
_ABSENT = {_VALUE: np.nan, _WEIGHT: np.nan, _PRESENT: False}


# A row without a column is read as None of it; reading by name would take half as long again.
_READ: Mapping[str, Callable[[Sequence[Any]], list[Any]]] = {
    "step": lambda rows: [row.step for row in rows],
    "reward": lambda rows: [row.reward for row in rows],
    "advantage": lambda rows: [row.advantage for row in rows],
    "masked": lambda rows: [row.masked for row in rows],
    "tokens": lambda rows: [row.tokens for row in rows],
    "response": lambda rows: [row.response for row in rows],
    "status": lambda rows: [row.status or "" for row in rows],
    "prompt": lambda rows: [row.prompt for row in rows],
}


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

    def same(self, text: str, count: int) -> NDArray[np.int32]:
        """(count,): the number of one text, which is added."""
        return np.full(count, self.known.setdefault(text, len(self.known)), dtype=np.int32)


@dataclass
class Texts:
    """The texts of a log's columns: prompts, and labels and statuses by number."""

    prompts: Prompts
    labels: Codes = field(default_factory=Codes)
    statuses: Codes = field(default_factory=Codes)


def table_of(
    rows: Sequence[Any], classes: Sequence[str] | None, positions: Sequence[int], texts: Texts
) -> Table:
    """Columns of rows with fields of Rollout that were read together; ``begins`` is False for the first.

    A column that the rows lack is filled with the default of Rollout.
    """
    count = len(rows)
    groups = [row.group for row in rows]
    step = _numbers(_values(rows, "step"), count, np.int64, UNKNOWN)
    begins = _changes(step, groups)
    status, response, prompt = (_values(rows, name) for name in ("status", "response", "prompt"))
    advantage = _values(rows, "advantage")
    return {
        "begins": begins,
        "position": _positions(positions),
        "step": step,
        "reward": _numbers(_values(rows, "reward"), count, np.float64, NAN),
        "advantage": _numbers(advantage, count, np.float64, NAN),
        "has_advantage": _present(advantage, count),
        "masked": _numbers(_values(rows, "masked"), count, np.bool_, False),
        "tokens": _numbers(_values(rows, "tokens"), count, np.int64, UNKNOWN),
        "response": np.zeros(count, dtype=np.uint64) if response is None else digests(response),
        "label": texts.labels.same("", count) if classes is None else texts.labels.of(classes),
        "status": texts.statuses.same("", count) if status is None else texts.statuses.of(status),
        "group": _at_beginnings(begins, groups),
        "prompt": np.zeros(count, np.uint64) if prompt is None else _prompts(begins, prompt, texts.prompts),
        **_parts_of(rows),
    }


def has(rows: Sequence[Any], name: str) -> bool:
    """Whether rows that were read together have a column."""
    return name in rows[0].__struct_fields__


def _values(rows: Sequence[Any], name: str) -> list[Any] | None:
    return _READ[name](rows) if has(rows, name) else None


def _numbers(values: list[Any] | None, count: int, dtype: type[np.generic], absent: float) -> NDArray[Any]:
    if values is None:
        return np.full(count, absent, dtype=dtype)
    try:
        return np.fromiter(values, dtype, len(values))
    except TypeError:
        # Slower; a value that is None becomes NaN.
        return np.array(values, dtype=dtype)


def _present(values: list[Any] | None, count: int) -> NDArray[np.bool_]:
    """(count,): where a value is given, be it NaN."""
    if values is None or None not in values:
        return np.full(count, values is not None, dtype=np.bool_)
    return np.array([value is not None for value in values], dtype=np.bool_)


def _changes(step: NDArray[np.int64], groups: Sequence[Any]) -> NDArray[np.bool_]:
    """(R,): whether step or group are others than those of the row before; False for the first row."""
    changes = np.fromiter(chain([False], map(ne, groups[1:], groups)), np.bool_, len(groups))
    changes[1:] |= step[1:] != step[:-1]
    return changes


def _at_beginnings(begins: NDArray[np.bool_], values: Sequence[Any]) -> NDArray[Any]:
    """(R,) values where a group begins, and of the first row, which may begin one; None elsewhere."""
    column = np.full(len(values), None, dtype=object)
    rows = [0, *np.flatnonzero(begins).tolist()]
    column[rows] = [values[row] for row in rows]
    return column


def _prompts(begins: NDArray[np.bool_], values: Sequence[Any], prompts: Prompts) -> NDArray[np.uint64]:
    """(R,) the number of each prompt, at the same rows; 0 elsewhere."""
    column = np.zeros(len(values), dtype=np.uint64)
    for row in (0, *np.flatnonzero(begins).tolist()):
        column[row] = prompts.add(values[row])
    return column


def _positions(given: Sequence[int]) -> NDArray[np.int64]:
    if isinstance(given, range):
        return np.arange(given.start, given.stop, dtype=np.int64)
    return np.array(given, dtype=np.int64)


def _parts_of(rows: Sequence[Any]) -> Table:
    table: Table = {}
    if not has(rows, "components"):
        return table
    parts = [row.components or {} for row in rows]
    weights = [row.weights or {} for row in rows] if has(rows, "weights") else [{}] * len(rows)
    for name in dict.fromkeys(chain.from_iterable(parts)):
        present = np.fromiter((name in part for part in parts), np.bool_, len(parts))
        table[_PRESENT + name] = present
        table[_VALUE + name] = np.array([part.get(name) for part in parts], dtype=np.float64)
        table[_WEIGHT + name] = np.array([weight.get(name, 1.0) for weight in weights], dtype=np.float64)
    return table


def assembled(
    source: str,
    tables: Iterable[Table],
    limit: int,
    texts: Texts,
    begun: Callable[[Sequence[Key]], None],
) -> Iterator[RewardGroups]:
    """Batches of at most ``limit`` rows, cut where groups begin; a larger group is a batch of its own.

    ``begun`` is called with the steps and groups of each batch before it is given.
    Raises RecordError where there is no row at all.
    """
    seen = False
    for table in _cut(tables, limit):
        starts = np.unique(np.append(0, np.flatnonzero(table["begins"])))
        begun(list(zip(table["step"][starts].tolist(), table["group"][starts].tolist(), strict=True)))
        yield _batch(source, table, starts, texts)
        seen = True
    if not seen:
        raise RecordError(
            f"{source} holds no groups: it has no rollout in it; give a log that was written to"
        )


def _cut(tables: Iterable[Table], limit: int) -> Iterator[Table]:
    """The rows of tables in whole groups, about ``limit`` at once."""
    held: list[Table] = []
    count = 0
    for table in tables:
        held.append(table)
        count += len(table["step"])
        if count > limit:
            whole = _joined(held)
            for cut in _cuts(whole["begins"], limit):
                yield _rows(whole, cut)
                count = len(whole["step"]) - cut.stop
            held = [_rows(whole, slice(len(whole["step"]) - count, None))]
    if count:
        yield _joined(held)


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


def _batch(source: str, table: Table, starts: Integers, texts: Texts) -> RewardGroups:
    rows = len(table["step"])
    components, weights = _parts(source, table)
    return RewardGroups(
        source=source,
        offsets=np.append(starts, rows).astype(np.int64),
        step=table["step"][starts],
        position=table["position"],
        reward=table["reward"],
        advantage=table["advantage"],
        has_advantage=table["has_advantage"],
        masked=table["masked"],
        tokens=table["tokens"],
        response=table["response"],
        label=Names(table["label"], tuple(texts.labels.known)),
        status=Names(table["status"], tuple(texts.statuses.known)),
        improvement=np.full(rows, np.nan),
        admitted=np.full(rows, -1, dtype=np.int8),
        components=components,
        name=tuple(map(str, table["group"][starts].tolist())),
        prompt=texts.prompts.excerpts(table["prompt"][starts].tolist()),
        prompt_id=table["prompt"][starts],
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
