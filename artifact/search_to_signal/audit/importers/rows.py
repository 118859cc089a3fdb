"""Rows of a log, one at a time, made into groups and batches of bounded size."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from ctypes import c_float
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.groups import UNKNOWN, Assumption, Floats, RewardGroups, named
from search_to_signal.audit.importers.prompts import Prompts
from search_to_signal.errors import RecordError

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
Evidence = Callable[[Sequence[Group]], tuple[Assumption, ...]]


def digest(text: str | None) -> int:
    """64 bits that stand for a text within this process; 0 for none.

    Two texts of a billion meet by chance about once in 40. Python salts its hashes: only whether two are
    equal may be used.
    """
    if text is None:
        return 0
    return hash(text) & _ALL_BITS or 1


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
        raise RecordError(
            f"{source} holds no groups: it has no rollout in it; give a log that was written to"
        )


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
    weights, reward = _weights(rows), _column(rows, "reward", np.float64)
    codes = [group[0].prompt for group in groups]
    sampling = np.array([group[0].sampling for group in groups], dtype=np.int64)
    return RewardGroups(
        source=source,
        offsets=np.cumsum([0, *(len(group) for group in groups)], dtype=np.int64),
        step=np.array([group[0].step for group in groups], dtype=np.int64),
        position=_column(rows, "position", np.int64),
        reward=reward,
        advantage=_column(rows, "advantage", np.float64),
        has_advantage=np.array([row.advantage is not None for row in rows], dtype=np.bool_),
        masked=_column(rows, "masked", np.bool_),
        tokens=_column(rows, "tokens", np.int64),
        response=_column(rows, "response", np.uint64),
        label=named([row.label for row in rows]),
        status=named([row.status for row in rows]),
        improvement=_column(rows, "improvement", np.float64),
        admitted=_column(rows, "admitted", np.int8),
        components=_components(source, rows, weights),
        weights=weights,
        metrics=_table(source, [row.metrics for row in rows]),
        name=tuple(group[0].name for group in groups),
        prompt=prompts.excerpts(codes),
        prompt_id=np.array(codes, dtype=np.uint64),
        sampling=sampling if sampling.any() else None,
        assumptions=(*(evidence(groups) if evidence else ()), *unscored(reward)),
    )


def _column(rows: Sequence[RolloutRow], name: str, dtype: Any) -> Any:
    return np.array([getattr(row, name) for row in rows], dtype=dtype)


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


def unscored(reward: Floats) -> tuple[Assumption, ...]:
    """Rewards that are no finite number are data: they are kept, and counted here."""
    nan, infinite = int(np.isnan(reward).sum()), int(np.isinf(reward).sum())
    counts = {"rewards": len(reward), "NaN": nan, "infinite": infinite}
    says = "a reward that is missing, NaN or infinite is kept as it is, and is no number to average"
    return (Assumption("unscored", says, counts),) if nan or infinite else ()
