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
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.groups import (
    COLUMNS,
    LETTERS,
    PROGRAM,
    REACHES,
    UNKNOWN,
    Assumption,
    Floats,
    Integers,
    Names,
    RewardGroups,
    joined,
    part,
    taken,
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


# What a program has no use for but to get at its judge: frames, names and clocks of others, its own arguments
# overwritten, a NaN on purpose. Searched as they stand, since a log has millions of texts.
_JUDGE = (
    *("_getframe", "currentframe(", "f_globals", "f_locals", "f_back", "globals()", "locals()", "gc.get_"),
    *("__globals__", "__builtins__", "__subclasses__", "__closure__", "sys.modules", "setattr(", "ctypes"),
    *("float('nan')", 'float("nan")', "np.nan", "math.nan", ".fill(", "perf_counter =", "time.time ="),
)


def reaches(text: str) -> bool:
    """Whether a text is a program that reaches for what judges it."""
    program = "def " in text or "import " in text
    return program and any(word in text for word in _JUDGE)


def digest(text: str | None) -> int:
    """63 bits that stand for a text within this process, and a first one for ``reaches``; 0 for none.

    Two texts of a billion meet by chance about once in 20. Python salts its hashes: only whether two are
    equal may be used.
    """
    if text is None:
        return 0
    return (hash(text) & REACHES - 1 or 1) + REACHES * reaches(text)


def digest_of(value: object) -> int:
    """As ``digest``; 0 for what is no text."""
    return digest(value if isinstance(value, str) else None)


def digests(texts: Sequence[str | None]) -> NDArray[np.uint64]:
    """(R,): the digest of each text."""
    if texts.count(None) == len(texts):
        return np.zeros(len(texts), dtype=np.uint64)
    return np.fromiter(map(digest, texts), np.uint64, len(texts))


_FENCED = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
_COMMENT = re.compile(r"^[ \t]*#.*\n?", re.MULTILINE)


def told_by(text: str | None) -> dict[str, float]:
    """Metrics that are read from a completion: its characters and, of a program, a number that stands for it
    without the text around its fences, comments and headings."""
    if text is None:
        return {}
    told = {LETTERS: float(len(text))}
    if "def " in text:
        code = _COMMENT.sub("", "".join(_FENCED.findall(text)) or text)
        told[PROGRAM] = program_number(code.strip())
    return told


def program_number(text: str) -> float:
    """53 bits of the hash of a text that is equal for equal programs."""
    return float(hash(text) & (1 << 53) - 1)


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
                f"{path}:{position}: a value does not fit its column in this format "
                f"({type(error).__name__}: {error}); give another --format, or remove the row"
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
    texts, waiting, held = Texts(prompts or Prompts()), list[Group](), 0

    def batch() -> RewardGroups:
        rows = [row for group in waiting for row in group]
        offsets = np.cumsum([0, *map(len, waiting)], dtype=np.int64)
        made = groups_of(source, rows, offsets, texts, [row.label for row in rows])
        said = evidence(waiting) if evidence else ()
        return _finished(made, texts.prompts, said)

    group: Group | None = None
    for group in groups:
        if waiting and held + len(group) > limit:
            yield batch()
            waiting, held = [], 0
        waiting.append(group)
        held += len(group)
        if held >= limit:
            # What is whole is given before a line that may be damaged.
            yield batch()
            waiting, held = [], 0
    if group is None:
        raise no_rollout(source)
    if waiting:
        yield batch()


def no_rollout(source: object) -> RecordError:
    """The error for a log without a row."""
    return RecordError(f"{source} holds no groups: it has no rollouts; give a log with rollouts")


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


@dataclass
class Codes:
    """Texts by number, in order of first appearance in a log."""

    known: dict[str, int] = field(default_factory=dict)

    def of(self, texts: Sequence[str] | None, count: int) -> Names:
        """The texts of (count,) rows, empty ones where there are none; new ones are added."""
        known, met = self.known, [""] if texts is None else dict.fromkeys(texts)
        for text in met:
            known.setdefault(text, len(known))
        if texts is None or len(met) == 1:
            code = np.full(count, known[next(iter(met))], dtype=np.int32)
        else:
            code = np.fromiter(map(known.__getitem__, texts), np.int32, count)
        return Names(code, tuple(known))


@dataclass
class Texts:
    """The texts of a log's columns: prompts, and labels and statuses by number."""

    prompts: Prompts
    labels: Codes = field(default_factory=Codes)
    statuses: Codes = field(default_factory=Codes)


def groups_of(
    source: str,
    rows: Sequence[Any],
    offsets: Integers,
    texts: Texts,
    classes: Sequence[str] | None,
    positions: Sequence[int] | None = None,
) -> RewardGroups:
    """Rows (R,) that were read together as groups, which begin at ``offsets``; prompts by number alone.

    Rows are RolloutRows, or have fields of Rollout, some or all; a field that they lack has its default.
    ``positions`` are those of rows without one. Raises RecordError for more names of numbers than are read.
    """
    count, numbered = len(rows), isinstance(rows[0], RolloutRow)
    firsts = [rows[at] for at in offsets[:-1].tolist()]

    def column(name: str, rows: Sequence[Any] = rows) -> NDArray[Any]:
        dtype, absent = COLUMNS.get(name, (np.float64, NAN))
        if not has(rows, name):
            return np.full(len(rows), absent, dtype=dtype)
        try:
            return np.fromiter(map(attrgetter(name), rows), dtype, len(rows))
        except TypeError:
            # Slower; a value that is None becomes NaN.
            return np.array(list(map(attrgetter(name), rows)), dtype=dtype)

    advantage, prompt = column("advantage"), np.zeros(len(firsts), np.uint64)
    given = ~np.isnan(advantage)
    if has(rows, "advantage") and not given.all():
        # Where a value is given, be it NaN.
        given = np.array([row.advantage is not None for row in rows], dtype=np.bool_)
    if isinstance(positions, range):
        # An array of its numbers would take far longer.
        position = np.arange(positions.start, positions.stop)
    else:
        position = column("position") if positions is None else np.array(positions, dtype=np.int64)
    if numbered or not has(rows, "response"):
        response = column("response")
    else:
        response = digests([row.response for row in rows])
    if has(rows, "prompt"):
        codes = (row.prompt if numbered else texts.prompts.add(row.prompt) for row in firsts)
        prompt = np.fromiter(codes, np.uint64, len(firsts))
    components, weights = _parts(source, rows)
    sampling = np.array([row.sampling for row in firsts] if numbered else [0], dtype=np.int64)
    of_rows = ("reward", "masked", "tokens", "improvement", "admitted")
    others: dict[str, Any] = {name: column(name) for name in of_rows}
    return RewardGroups(
        source=source,
        offsets=offsets,
        step=column("step", firsts),
        position=position,
        advantage=advantage,
        has_advantage=given,
        response=response,
        label=texts.labels.of(classes, count),
        status=texts.statuses.of([row.status or "" for row in rows] if has(rows, "status") else None, count),
        components=components,
        weights=weights,
        metrics=_table(source, [row.metrics for row in rows]) if numbered else {},
        name=tuple(row.name if numbered else str(row.group) for row in firsts),
        prompt_id=prompt,
        sampling=sampling if sampling.any() else None,
        **others,
    )


def has(rows: Sequence[Any], name: str) -> bool:
    """Whether rows that were read together have a column."""
    return name in rows[0].__struct_fields__


def _table(source: str, rows: Sequence[Mapping[str, float | None]]) -> dict[str, Floats]:
    names = dict.fromkeys(chain.from_iterable(rows))
    # What is read from texts is no name of the log.
    if (logged := len(names.keys() - {LETTERS, PROGRAM})) > MOST_NAMES:
        raise RecordError(
            f"{source}: {logged} different names of numbers in {len(rows)} rows, where "
            f"{MOST_NAMES} are read: leave out what is no reward or metric"
        )
    return {name: np.array([row.get(name, NAN) for row in rows], dtype=np.float64) for name in names}


def _parts(source: str, rows: Sequence[Any]) -> tuple[dict[str, Floats], dict[str, float]]:
    """Components and their weights; one whose weight changes is weighted already, and has 1."""
    if not has(rows, "components"):
        return {}, {}
    parts = [row.components or {} for row in rows]
    components, weights = _table(source, parts), dict[str, float]()
    weighed = [row.weights or {} for row in rows] if has(rows, "weights") else [{}] * len(rows)
    for name, value in components.items():
        weight = np.array([one.get(name, 1.0) for one in weighed], dtype=np.float64)
        given = weight[[name in part for part in parts]]
        same = bool((given == given[0]).all())
        components[name] = value if same else value * weight
        weights[name] = float(given[0]) if same else 1.0
    return components, weights


def assembled(
    chunks: Iterable[tuple[bool, RewardGroups]],
    limit: int,
    prompts: Prompts,
    begun: Callable[[Sequence[Key]], None] | None,
) -> Iterator[RewardGroups]:
    """Batches of at most ``limit`` rows, cut where groups begin; a larger group is a batch of its own.

    Each chunk comes with whether its first group goes on the last one of the chunk before. ``begun``, if
    given, is called with the steps and names of each batch before it is given.
    """
    held, goes_on, rows = list[RewardGroups](), list[bool](), 0

    def whole() -> RewardGroups:
        # Where a group goes on, it does not begin.
        starts = np.cumsum([0, *(len(chunk.step) for chunk in held)])[:-1]
        kept = np.delete(np.arange(sum(len(chunk.step) for chunk in held)), starts[goes_on])
        every = joined(*held)
        return taken(every, slice(None), np.append(every.offsets[kept], rows), kept)

    def finished(batch: RewardGroups) -> RewardGroups:
        if begun is not None:
            begun(list(zip(batch.step.tolist(), batch.name, strict=True)))
        return _finished(batch, prompts)

    for continued, chunk in chunks:
        held.append(chunk)
        goes_on.append(continued and len(held) > 1)
        rows += len(chunk.reward)
        if rows > limit:
            groups, first = whole(), 0
            starts = groups.offsets[:-1]
            # The last group may still grow.
            while rows - starts[first] > limit and first < len(starts) - 1:
                end = max(int(np.searchsorted(starts, starts[first] + limit, "right")) - 1, first + 1)
                yield finished(part(groups, first, end))
                first = end
            held, goes_on = [part(groups, first, len(starts))], [False]
            rows = len(held[0].reward)
    if held:
        yield finished(whole())


def _finished(groups: RewardGroups, prompts: Prompts, said: tuple[Assumption, ...] = ()) -> RewardGroups:
    """A batch with its prompts to recognize them by, and with what was assumed.

    Rewards that are no finite number are data: they are kept, and counted here.
    """
    reward = groups.reward
    nan, infinite = int(np.isnan(reward).sum()), int(np.isinf(reward).sum())
    if nan or infinite:
        says = "a reward that is missing, NaN or infinite is kept as it is, and is no number to average"
        counts = {"rewards": len(reward), "NaN": nan, "infinite": infinite}
        said = (*said, Assumption("unscored", says, counts))
    return replace(groups, prompt=prompts.excerpts(groups.prompt_id.tolist()), assumptions=said)
