"""Rows of a log made into groups and batches of bounded size.

They come one at a time, or as columns, many at once: a long log of the neutral form is read fast and with
flat memory.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from operator import ne
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.groups import (
    COLUMNS,
    UNKNOWN,
    Assumption,
    Floats,
    Integers,
    Names,
    RewardGroups,
    named,
)
from search_to_signal.base.errors import RecordError

# Prompts by their whole text: what identifies each, and the part by which a person recognizes it.

# Characters of a prompt that are shown, and those before the first difference from which they may begin.
EXCERPT, _BEFORE = 120, 40
# Prompts that are held at once: more than the groups of a batch and those that are still open.
_MOST = 100_000


class Prompts:
    """The prompts of a log: of each, how it begins and what follows the part it shares with the first."""

    def __init__(self) -> None:
        self._first = ""
        self._known: dict[int, tuple[str, int, str]] = {}
        self._shared: int | None = None

    def add(self, prompt: Any) -> int:
        """A number for a text or conversation, equal for equal ones within a process; 0 for anything else."""
        text, begins = _texts(prompt)
        if text is None:
            return 0
        code = hash(text) & 2**64 - 1 or 1
        if code not in self._known:
            self._first = self._first or text
            shared = _common(self._first, text)
            self._known[code] = (_line(begins), shared, text[shared : shared + EXCERPT])
            if text != self._first:
                self._shared = shared if self._shared is None else min(self._shared, shared)
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return code

    def excerpts(self, codes: Iterable[int]) -> tuple[str, ...]:
        """One line for each number: how its prompt begins, or where the log's prompts begin to differ."""
        start, shared = 0, self._shared
        if shared is not None and shared > EXCERPT // 2:
            # At a word shortly before the first difference, since that is not near enough.
            words = (match.start() for match in re.finditer(r"\S+", self._first[:shared]))
            start = next((at for at in words if at >= shared - _BEFORE), shared)

        def excerpt(begins: str, shared: int, tail: str) -> str:
            return _line(f"…{self._first[start:shared]}{tail}") if start else begins

        return tuple(excerpt(*self._known[code]) if code in self._known else "" for code in codes)


def _texts(prompt: Any) -> tuple[str | None, str]:
    """A prompt as one text, and the text it is shown by: of a conversation all messages, and the last."""
    if isinstance(prompt, str):
        return prompt, prompt
    if not isinstance(prompt, list | tuple) or not prompt or not isinstance(prompt[-1], Mapping):
        return None, ""
    messages = [message.get("content") if isinstance(message, Mapping) else message for message in prompt]
    texts = [message if isinstance(message, str) else repr(message) for message in messages]
    return "\n".join(texts), texts[-1]


def _line(text: str) -> str:
    return " ".join(text[: 4 * EXCERPT].split())[:EXCERPT]


def _common(first: str, second: str) -> int:
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle - 1)
    return low


NAN = math.nan
Made = TypeVar("Made")
# A table of rows by names is dense: a name per row would be as large as the square of the log.
MOST_NAMES = 256
# Groups of which some tie by chance, where rewards repeat.
_MANY = 8
_ALL_BITS = 2**64 - 1
_NUMBERS = (bool, int, float, np.floating, np.integer)


class RolloutRow(msgspec.Struct, frozen=True, gc=False):
    """One rollout or candidate; ``group`` is equal for the rows of one group. Columns as in RewardGroups.

    ``advantage`` is None where the log has none, and NaN where it has NaN. ``name`` is what the log calls the
    group, ``prompt`` the number of its prompt (``Prompts``); those of its first row count.
    ``member`` is the number of a row within its group, where the log has one: it tells two samplings apart.
    ``sampling`` counts on where a resumed run sampled a step again.
    """

    group: Hashable
    position: int
    reward: float
    step: int = UNKNOWN
    advantage: float | None = None
    masked: bool = False
    tokens: int = UNKNOWN
    response: int = 0
    label: str = ""
    status: str = ""
    improvement: float = NAN
    admitted: int = UNKNOWN
    components: Mapping[str, float] = msgspec.field(default_factory=dict)
    weights: Mapping[str, float] = msgspec.field(default_factory=dict)
    metrics: Mapping[str, float] = msgspec.field(default_factory=dict)
    member: Hashable = None
    name: str = ""
    prompt: int = 0
    sampling: int = 0


Group = Sequence[RolloutRow]
# Step and group of a row; ``RolloutRow.group`` holds both where groups are gathered by them.
Key = tuple[int, Hashable]
Evidence = Callable[[Sequence[Group]], tuple[Assumption, ...]]


def digest(text: str | None) -> int:
    """64 bits that stand for a text within this process; 0 for none.

    Two texts of a billion meet by chance about once in 40. Python salts its hashes: only whether two are
    equal may be used.
    """
    if text is None:
        return 0
    return hash(text) & _ALL_BITS or 1


def digest_of(value: object) -> int:
    """As ``digest``; 0 for what is no text."""
    return digest(value if isinstance(value, str) else None)


def digests(texts: Sequence[str | None]) -> NDArray[np.uint64]:
    """(R,): the digest of each text."""
    if texts.count(None) == len(texts):
        return np.zeros(len(texts), dtype=np.uint64)
    codes = np.fromiter(map(hash, texts), np.int64, len(texts)).view(np.uint64)
    codes[codes == 0] = 1
    if None in texts:
        codes[[text is None for text in texts]] = 0
    return codes


def number(value: object) -> float:
    """A logged number as it is; NaN for none and for what is no number."""
    if not isinstance(value, _NUMBERS):
        return NAN
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def score(value: object) -> float:
    """A reward or an advantage: NaN for none; a text that reads as a number is that number.

    Raises ValueError for anything else, which would be lost as NaN.
    """
    if value is None:
        return NAN
    if isinstance(value, str):
        return float(value)
    if not isinstance(value, _NUMBERS):
        raise ValueError(f"{value!r} is no number")
    return number(value)


def advantage(value: object) -> float | None:
    """A logged advantage: None for none; NaN is kept as what the trainer computed. Errors as in ``score``."""
    return None if value is None else score(value)


def float32(value: float) -> float:
    """A number as float32 holds it: where a trainer adds up rewards, that decides which are equal."""
    return c_float(value).value


def numbers(values: object, without: Iterable[str] = ()) -> dict[str, float]:
    """The entries of a mapping that are numbers."""
    if not isinstance(values, Mapping):
        return {}
    skipped = set(without)
    return {str(k): number(v) for k, v in values.items() if isinstance(v, _NUMBERS) and k not in skipped}


def count(value: object) -> int:
    """A logged whole number; -1 for none, for what is no whole number, and for one beyond 64 bits."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    known = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return int(value) if known and isinstance(value, int) else UNKNOWN


def rows_of(
    path: Path, records: Iterable[tuple[int, dict[str, Any]]], make: Callable[[dict[str, Any], int], Made]
) -> Iterator[Made]:
    """What ``make`` makes of each record and its position; RecordError names one of another shape."""
    for position, record in records:
        try:
            yield make(record, position)
        except (TypeError, AttributeError, ValueError, KeyError, IndexError, OverflowError) as error:
            raise RecordError(
                f"{path}:{position}: the columns are there, but not as the format has them "
                f"({type(error).__name__}: {error}); name another format, or leave the row out"
            ) from error


def consecutive(rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """Rows of one group stand together: nothing but the group at hand is held."""
    for _, members in groupby(rows, key=lambda row: row.group):
        yield list(members)


def batches(
    source: str,
    groups: Iterable[Group],
    limit: int,
    evidence: Evidence | None = None,
    prompts: Prompts | None = None,
) -> Iterator[RewardGroups]:
    """Groups as batches of at most ``limit`` rows; a larger group is a batch of its own.

    ``prompts`` has those that the rows number. Raises RecordError where there is no group at all.
    """
    waiting: list[Group] = []
    held, seen = 0, False
    for group in groups:
        if waiting and held + len(group) > limit:
            yield _batch(source, waiting, evidence, prompts or Prompts())
            waiting, held = [], 0
        waiting.append(group)
        held, seen = held + len(group), True
        if held >= limit:
            yield _batch(source, waiting, evidence, prompts or Prompts())
            waiting, held = [], 0
    if waiting:
        yield _batch(source, waiting, evidence, prompts or Prompts())
    if not seen:
        raise _no_rollout(source)


def _no_rollout(source: str) -> RecordError:
    return RecordError(f"{source} holds no groups: it has no rollout in it; give a log that was written to")


def noted(batches: Iterable[RewardGroups], notes: Iterable[Assumption]) -> Iterator[RewardGroups]:
    """The batches, the first with what is said of them all, which is asked when it is there."""
    for number, batch in enumerate(batches):
        yield batch if number else replace(batch, assumptions=(*batch.assumptions, *notes))


def assumed(key: str, says: str) -> Evidence:
    """Evidence for one assumption on what a group is: how many there are, and how many of each size."""
    return lambda groups: (Assumption(key, says, sizes(groups)),)


def sizes(groups: Sequence[Group]) -> dict[str, int]:
    """How many groups, and how many of each size."""
    counts = Counter(len(group) for group in groups)
    return {"groups": len(groups), **{f"groups of {size}": counts[size] for size in sorted(counts)}}


def _batch(source: str, groups: Sequence[Group], evidence: Evidence | None, prompts: Prompts) -> RewardGroups:
    rows = [row for group in groups for row in group]
    weights, codes = _weights(rows), [group[0].prompt for group in groups]
    reward = np.array([row.reward for row in rows], dtype=np.float64)
    sampling = np.array([group[0].sampling for group in groups], dtype=np.int64)
    columns: dict[str, Any] = {
        name: np.array([getattr(row, name) for row in rows], dtype=COLUMNS[name][0])
        for name in ("position", "advantage", "masked", "tokens", "response", "improvement", "admitted")
    }
    return RewardGroups(
        source=source,
        offsets=np.cumsum([0, *(len(group) for group in groups)], dtype=np.int64),
        step=np.array([group[0].step for group in groups], dtype=np.int64),
        reward=reward,
        has_advantage=np.array([row.advantage is not None for row in rows], dtype=np.bool_),
        label=named([row.label for row in rows]),
        status=named([row.status for row in rows]),
        components=_components(source, rows, weights),
        weights=weights,
        metrics=_table(source, [row.metrics for row in rows]),
        name=tuple(group[0].name for group in groups),
        prompt=prompts.excerpts(codes),
        prompt_id=np.array(codes, dtype=np.uint64),
        sampling=sampling if sampling.any() else None,
        assumptions=(*(evidence(groups) if evidence else ()), *_unscored(reward)),
        **columns,
    )


def _table(source: str, rows: Sequence[Mapping[str, float]]) -> dict[str, Floats]:
    names = dict.fromkeys(name for row in rows for name in row)
    refuse_many_names(source, len(names), len(rows))
    return {name: np.array([row.get(name, NAN) for row in rows], dtype=np.float64) for name in names}


def _weights(rows: Sequence[RolloutRow]) -> dict[str, float]:
    """One weight per component; 1 for a component whose weight changes, which is then weighted already."""
    weights: dict[str, set[float]] = {}
    for row in rows:
        for name, weight in row.weights.items():
            weights.setdefault(name, set()).add(weight)
    return {name: next(iter(seen)) if len(seen) == 1 else 1.0 for name, seen in weights.items()}


def _components(source: str, rows: Sequence[RolloutRow], weights: Mapping[str, float]) -> dict[str, Floats]:
    scaled = [
        {
            name: value if row.weights.get(name) == weights.get(name) else value * row.weights[name]
            for name, value in row.components.items()
        }
        for row in rows
    ]
    return _table(source, scaled)


def evaluated(groups: int) -> tuple[Assumption, ...]:
    """Evidence that groups are evaluations, which no trainer trained."""
    says = "these are evaluations: nothing of them was trained"
    return (Assumption("evaluation", says, {"groups": groups}),) if groups else ()


def no_ties(option: str, groups: Sequence[Group]) -> tuple[Assumption, ...]:
    """Evidence that an option of the trainer dropped groups before they were written: none of many ties.

    Rewards that repeat within every group would tie in some.
    """
    levels = [(len({one.reward for one in group}), len(group)) for group in groups if len(group) > 1]
    if len(levels) < _MANY or not all(1 < different < size for different, size in levels):
        return ()
    says = f"no group ties, as if {option} had dropped such groups before: what was dropped is no waste here"
    return (Assumption("no_ties", says, {"groups": len(levels)}),)


def refuse_many_names(source: str, names: int, rows: int) -> None:
    """Raise RecordError for more names of numbers than are read."""
    if names > MOST_NAMES:
        raise RecordError(
            f"{source}: {names} different names of numbers in {rows} rows, where "
            f"{MOST_NAMES} are read: leave out what is no reward or metric"
        )


def _unscored(reward: Floats) -> tuple[Assumption, ...]:
    """Rewards that are no finite number are data: they are kept, and counted here."""
    nan, infinite = int(np.isnan(reward).sum()), int(np.isinf(reward).sum())
    counts = {"rewards": len(reward), "NaN": nan, "infinite": infinite}
    says = "a reward that is missing, NaN or infinite is kept as it is, and is no number to average"
    return (Assumption("unscored", says, counts),) if nan or infinite else ()


Table = dict[str, NDArray[Any]]
# Further columns of a table: a part of the reward, its weight, and whether a row has it.
_VALUE, _WEIGHT, _PRESENT = "value of ", "weight of ", "presence of "
_PLAIN = ("position", "reward", "advantage", "has_advantage", "masked", "tokens", "response")
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
    begins = np.fromiter(chain([False], map(ne, groups[1:], groups)), np.bool_, count)
    begins[1:] |= step[1:] != step[:-1]
    # Group and prompt are those of the rows where a group begins, and of the first, which may begin one.
    firsts = [0, *np.flatnonzero(begins).tolist()]
    names, prompts = np.full(count, None, dtype=object), np.zeros(count, dtype=np.uint64)
    names[firsts] = [groups[row] for row in firsts]
    status, response, prompt = (_values(rows, name) for name in ("status", "response", "prompt"))
    if prompt is not None:
        prompts[firsts] = np.array([texts.prompts.add(prompt[row]) for row in firsts], dtype=np.uint64)
    advantage = _values(rows, "advantage")
    # Where a value is given, be it NaN.
    given = np.full(count, advantage is not None, dtype=np.bool_)
    if advantage is not None and None in advantage:
        given = np.array([value is not None for value in advantage], dtype=np.bool_)
    return {
        "begins": begins,
        # An array of the range would take far longer.
        "position": np.arange(positions.start, positions.stop)
        if isinstance(positions, range)
        else np.array(positions, dtype=np.int64),
        "step": step,
        "reward": _numbers(_values(rows, "reward"), count, np.float64, NAN),
        "advantage": _numbers(advantage, count, np.float64, NAN),
        "has_advantage": given,
        "masked": _numbers(_values(rows, "masked"), count, np.bool_, False),
        "tokens": _numbers(_values(rows, "tokens"), count, np.int64, UNKNOWN),
        "response": np.zeros(count, dtype=np.uint64) if response is None else digests(response),
        "label": texts.labels.same("", count) if classes is None else texts.labels.of(classes),
        "status": texts.statuses.same("", count) if status is None else texts.statuses.of(status),
        "group": names,
        "prompt": prompts,
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
    begun: Callable[[Sequence[Key]], None] | None,
) -> Iterator[RewardGroups]:
    """Batches of at most ``limit`` rows, cut where groups begin; a larger group is a batch of its own.

    ``begun``, if given, is called with the steps and groups of each batch before it is given.
    Raises RecordError where there is no row at all.
    """
    seen = False
    for table in _cut(tables, limit):
        starts = np.unique(np.append(0, np.flatnonzero(table["begins"])))
        if begun is not None:
            begun(list(zip(table["step"][starts].tolist(), table["group"][starts].tolist(), strict=True)))
        yield _table_batch(source, table, starts, texts)
        seen = True
    if not seen:
        raise _no_rollout(source)


def _cut(tables: Iterable[Table], limit: int) -> Iterator[Table]:
    held: list[Table] = []
    count = 0
    for table in tables:
        held.append(table)
        count += len(table["step"])
        if count > limit:
            whole = _joined(held)
            for cut in _cuts(whole["begins"], limit):
                yield {name: column[cut] for name, column in whole.items()}
                count = len(whole["step"]) - cut.stop
            held = [{name: column[len(column) - count :] for name, column in whole.items()}]
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

    def column(table: Table, name: str) -> NDArray[Any]:
        if name in table:
            return table[name]
        absent = next(value for kind, value in _ABSENT.items() if name.startswith(kind))
        return np.full(len(table["step"]), absent)

    return {name: np.concatenate([column(table, name) for table in tables]) for name in names}


def _table_batch(source: str, table: Table, starts: Integers, texts: Texts) -> RewardGroups:
    rows = len(table["step"])
    components, weights = _parts(source, table)
    return RewardGroups(
        source=source,
        offsets=np.append(starts, rows).astype(np.int64),
        step=table["step"][starts],
        label=Names(table["label"], tuple(texts.labels.known)),
        status=Names(table["status"], tuple(texts.statuses.known)),
        improvement=np.full(rows, np.nan),
        admitted=np.full(rows, -1, dtype=np.int8),
        components=components,
        name=tuple(map(str, table["group"][starts].tolist())),
        prompt=texts.prompts.excerpts(table["prompt"][starts].tolist()),
        prompt_id=table["prompt"][starts],
        weights=weights,
        assumptions=_unscored(table["reward"]),
        **{name: table[name] for name in _PLAIN},  # type: ignore[arg-type]
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
