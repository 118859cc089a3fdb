"""The neutral log: a rollout per row of JSON Lines, a JSON list, CSV or Parquet, by ``rollouts.schema.json``.

Rows of one ``step`` and ``group`` are one group, wherever they stand; those that a resumed run sampled again
are a group of their own. A row whose reward is a list is a row for each entry. Columns beyond the schema are
left alone; ``label`` may name one of them. A caller who says what columns are called
(``ReadOptions.columns``) has any such file read. Beside it stand the records that ``s2s run`` writes.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import ne
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from search_to_signal.audit.groups import (
    PROGRAM,
    UNKNOWN,
    UNTRAINED,
    Assumption,
    RewardGroups,
    with_advantages,
)
from search_to_signal.audit.importers import containers, streams
from search_to_signal.audit.importers.base import (
    Beginnings,
    Format,
    ReadOptions,
    joined,
    refuse_unknown_label,
    runs_of,
    until_damaged,
    value_at,
)
from search_to_signal.audit.importers.rows import (
    NAN,
    Group,
    Key,
    Prompts,
    RolloutRow,
    Texts,
    assembled,
    batches,
    count,
    digest,
    groups_of,
    has,
    no_rollout,
    noted,
    number,
    program_number,
    score,
)
from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.records.reader import read_groups
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord

SCHEMA = Path(__file__).with_name("rollouts.schema.json")
_Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Made = TypeVar("Made")
_WORDS = {"true": 1.0, "false": 0.0}


class Rollout(msgspec.Struct, frozen=True, gc=False):
    """One rollout. Rows of one ``step`` and ``group`` are one group, in any order; a higher ``reward`` is
    better, null means none.

    ``advantage`` may be NaN, as a trainer computed it. ``masked``: the trainer left the rollout out of the
    loss. ``tokens`` counts the response tokens that are trained. ``components`` are named parts of the reward
    before their ``weights``. Equal ``response`` texts, or ids, mean equal responses. ``label`` is a class
    of your choice, ``status`` how the rollout ended, ``prompt`` a text or messages to recognize it by.
    """

    group: int | str
    reward: float | None
    step: int = UNKNOWN
    advantage: float | None = None
    masked: bool = False
    tokens: int = UNKNOWN
    response: str | None = None
    label: str | None = None
    status: str | None = None
    prompt: Any = None
    components: dict[str, float | None] | None = None
    weights: dict[str, float | None] | None = None


COLUMNS = tuple(Rollout.__struct_fields__)
# What a caller may say that a column is called.
NAMED = COLUMNS[: COLUMNS.index("components")]


@dataclass(frozen=True)
class Columns:
    """What the columns of a file are called: ``names`` by those of Rollout, and ``label``, the class.

    ``parts`` are columns that are parts of the reward, with their weights; the reward is their sum where the
    file has none. ``a.b`` is column b within a. Raises ConfigError for a name that Rollout has not.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    label: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.names) - set(NAMED))
        if unknown:
            raise ConfigError(f"no column is called {', '.join(unknown)}: map one of {', '.join(NAMED)}")

    def of(self, name: str) -> str:
        """The column of the file that is the given one of Rollout; of the class the outermost one."""
        own = self.names.get(name, name)
        return (self.label or own).split(".")[0] if name == "label" else own

    def decoders(self, known: Sequence[str]) -> "tuple[msgspec.json.Decoder[Any], ...]":
        """Lines of JSON to rows with fields of Rollout, ``label`` of any type: the fastest decoder first.

        That takes rows that have the columns ``known`` and no other, and leaves out the fields they lack; the
        second takes any. None where columns are within others, or one is named twice: such rows go through
        ``rollout``.
        """
        own = [self.of(name) for name in COLUMNS]
        if any("." in name for name in self.names.values()) or len(set(own)) < len(own) or self.parts:
            return ()
        fields = dict[str, tuple[str, Any, Any]]()
        for column in msgspec.structs.fields(Rollout):
            kind = Any if column.name == "label" else _Whole if column.type is int else column.type
            default = {} if column.required else {"default": column.default}
            field_of = msgspec.field(name=self.of(column.name), **default)
            fields[self.of(column.name)] = column.name, kind, field_of
        every = msgspec.defstruct("Read", [*fields.values()], frozen=True, gc=False)
        needed = {self.of("group"), self.of("reward")}
        # msgspec takes no name that JSON escapes.
        if not needed <= set(known) or not all(map(str.isidentifier, known)):
            return (msgspec.json.Decoder(every),)
        skipped = {
            name: (f"other_{name}", msgspec.Raw, msgspec.field(name=name, default=None)) for name in known
        }
        given = [(skipped | fields)[name] for name in known]
        alone = msgspec.defstruct(
            "Known", given, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True
        )
        return msgspec.json.Decoder(alone), msgspec.json.Decoder(every)

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Columns of the file that are read, of those within others the outermost."""
        names = [*map(self.of, COLUMNS), *self.parts]
        return frozenset((*names, *(name.split(".")[0] for name in names)))

    def unlisted(self, record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """A row for each entry where the reward is a list, of a whole batch or of one group; else the record.

        Columns with as many entries are split with it, and others belong to each row. Raises ValueError where
        a column that has one value in a row is a list of another length.
        """
        parts = [record.get(name) for name in (self.of("reward"), *self.parts)]
        count = next((len(part) for part in parts if isinstance(part, list)), None)
        if count is None:
            return [record]
        lists = {name: value for name, value in record.items() if isinstance(value, list)}
        # A chat is one prompt.
        chats = {
            name
            for name, value in lists.items()
            if value and all(isinstance(entry, Mapping) and "role" in entry for entry in value)
        }
        split = {name: value for name, value in lists.items() if len(value) == count and name not in chats}
        single = map(self.of, ("group", "reward", "step", "advantage", "masked", "tokens"))
        if odd := [name for name in single if name in lists and name not in split]:
            raise ValueError(f"lists of different lengths: {', '.join(odd)} has not {count} entries")
        rows = (dict(record) | {name: value[at] for name, value in split.items()} for at in range(count))
        return [one for row in rows for one in self.unlisted(row)]

    def key(self, record: Mapping[str, Any]) -> tuple[int, int | str]:
        """Step and group of a record; raises ValueError for one that has none."""
        return self._read(record, "step", _whole), self._read(record, "group", _group)

    def rollout(self, record: Mapping[str, Any]) -> Rollout:
        """A record as a row, ``label`` left as it is; raises ValueError for one that breaks the schema."""
        step, group = self.key(record)
        components, weights = self._parts(record)
        return Rollout(
            group=group,
            reward=self._reward(record, components),
            step=step,
            advantage=self._read(record, "advantage", _number),
            masked=self._read(record, "masked", _number) not in (None, 0.0),
            tokens=self._read(record, "tokens", _whole),
            response=self._read(record, "response", _text),
            label=record.get(self.of("label")),
            status=self._read(record, "status", _text),
            prompt=column_value(record, self.of("prompt")),
            components=components,
            weights=weights,
        )

    def _read(self, record: Mapping[str, Any], name: str, made: Callable[[Any], Made]) -> Made:
        try:
            return made(column_value(record, self.of(name)))
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{self.of(name)}: {error}") from error

    def _reward(self, record: Mapping[str, Any], components: Mapping[str, float | None]) -> float | None:
        name = self.of("reward")
        if name in record or "." in name:
            return self._read(record, "reward", _score)
        if not self.parts:
            raise ValueError(f"no {name}, which is null where there is none")
        given = [self.parts[name] * value for name, value in components.items() if value is not None]
        return sum(given) if given else None

    def _parts(self, record: Mapping[str, Any]) -> tuple[dict[str, float | None], dict[str, float | None]]:
        if self.parts:
            return {name: _score(column_value(record, name)) for name in self.parts}, dict(self.parts)
        parts, weights = (_numbers(record.get(name), name) for name in ("components", "weights"))
        return parts, {name: weights.get(name, 1.0) for name in parts}


def column_value(record: Mapping[str, Any], name: str) -> Any:
    """The value of a column, ``a.b`` being column b within a unless the file has one of that very name."""
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _number(value: Any) -> float | None:
    """A number as it is, NaN too, also one written as a text; truth as 1 and 0; None for an empty text."""
    if isinstance(value, str):
        value = _WORDS.get(value.lower(), value)
    return None if value in (None, "") else score(value)


def _score(value: Any) -> float | None:
    """A number, or None where it is NaN."""
    known = _number(value)
    return None if known is None or math.isnan(known) else known


def _whole(value: Any) -> int:
    if value is None:
        return UNKNOWN
    known = float(value) if isinstance(value, str) and not value.lstrip("-").isdecimal() else value
    if isinstance(known, str):
        known = int(known)
    if isinstance(known, float) and known.is_integer():
        known = int(known)
    if not isinstance(known, int) or isinstance(known, bool) or abs(known) >= 2**63:
        raise ValueError(f"{value!r} is no whole number")
    return known


def _group(value: Any) -> int | str:
    if value is None or value != value:
        raise ValueError("no group: name it, or leave the row out")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | str) else json.dumps(value, default=str, sort_keys=True)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)


def _numbers(value: Any, name: str) -> dict[str, float | None]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} are no numbers by name")
    return {str(key): None if entry is None else number(entry) for key, entry in value.items()}


def refused(path: Path, position: int, error: Exception) -> RecordError:
    """The error for a row that is no rollout."""
    return RecordError(f"{path}:{position}: not a rollout ({error}); see {SCHEMA.name}")


# Lines or rows that are read together, with the position of each.
Chunk = tuple[Sequence[int], list[Any]]
Records = Iterable[tuple[int, dict[str, Any]]]
# Rows that are made into columns at once where they are no lines of JSON.
_ROWS = 4096


def _read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    parts = dict.fromkeys(options.components or options.weights, 1.0) | dict(options.weights)
    columns = Columns(options.columns, options.label, parts)
    known = containers.sniff(path).columns
    named = [*columns.names.values(), *columns.parts, *([columns.label] if columns.label else [])]
    if missing := [name for name in named if name not in known and name.split(".")[0] not in known]:
        raise RecordError(f"{path} has no column {', '.join(missing)}: choose one of {', '.join(known)}")
    groups = _groups(path, columns, known, options)
    yield from map(with_advantages, groups) if columns.of("advantage") in known else groups


def _groups(
    path: Path, columns: Columns, known: Sequence[str], options: ReadOptions
) -> Iterator[RewardGroups]:
    begun = Beginnings(str(path)) if options.together else None
    runs = None if begun else runs_of(until_damaged(_keys(path, columns)))
    if runs is None or runs.whole:
        chunks = _grouped(path, columns, known, Texts(options.prompts))
        yield from assembled(chunks, options.rows, options.prompts, begun.add if begun else None)
        if begun:
            begun.check()
        return
    rows = (
        _row(row, at, columns, options.prompts)
        for positions, chunk in _chunks(path, columns, ())
        for at, row in zip(positions, chunk, strict=True)
    )
    gathered = batches(str(path), joined(runs, rows), options.rows, prompts=options.prompts)
    yield from noted(gathered, runs.notes())


def _records(path: Path, columns: Columns) -> Records:
    container = containers.container_of(path)
    if container == containers.CSV:
        return streams.read_csv(path)
    if container == containers.JSON:
        return enumerate(streams.read_document(path))
    wanted = [name for name in containers.parquet_columns(path) if name in columns.wanted]
    return containers.read_table(path, wanted)


def _keys(path: Path, columns: Columns) -> Iterator[Key]:
    """Step and group of every row, of neighbours with the same of one at least."""
    if containers.container_of(path) != containers.JSONL:
        yield from _keys_of(path, _records(path, columns), columns)
        return
    group: tuple[str, Any, Any] = ("group", int | str, msgspec.field(name=columns.of("group")))
    step = ("step", _Whole, msgspec.field(name=columns.of("step"), default=UNKNOWN))
    decoders = (msgspec.json.Decoder(msgspec.defstruct("Key", [group, step], gc=False)),)
    for lines in streams.read_chunks(path):
        rows = _decoded(decoders if columns.decoders(()) else (), lines)
        if rows is None:
            yield from _keys_of(path, streams.records_of(path, lines), columns)
        else:
            yield from ((row.step, row.group) for row in rows)


def _keys_of(path: Path, records: Records, columns: Columns) -> Iterator[Key]:
    for position, record in records:
        try:
            yield from map(columns.key, columns.unlisted(record))
        except (ValueError, TypeError, OverflowError) as error:
            raise refused(path, position, error) from error


def _decoded(decoders: "Iterable[msgspec.json.Decoder[Any]]", lines: streams.Lines) -> list[Any] | None:
    for decoder in decoders:
        try:
            rows = decoder.decode_lines(lines.text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if len(rows) == lines.size:
            return rows
    return None


def _chunks(path: Path, columns: Columns, known: Sequence[str]) -> Iterator[Chunk]:
    """The rows of a file, many at once; those that have the columns ``known`` alone may lack other fields."""
    if containers.container_of(path) != containers.JSONL:
        yield from _chunks_of(path, _records(path, columns), columns)
        return
    decoders = columns.decoders(known)
    for lines in streams.read_chunks(path):
        rows = _decoded(decoders, lines)
        if rows is None:
            yield from _chunks_of(path, streams.records_of(path, lines), columns)
        else:
            yield range(lines.first, lines.first + lines.size), rows


def _chunks_of(path: Path, records: Records, columns: Columns) -> Iterator[Chunk]:
    """Rows from records; those before one that is refused are handed out first."""
    positions, rows, refusal = list[int](), list[Any](), None
    try:
        for position, record in records:
            for row in columns.unlisted(record):
                rows.append(columns.rollout(row))
                positions.append(position)
            if len(rows) >= _ROWS:
                yield positions, rows
                positions, rows = [], []
    except (ValueError, TypeError, OverflowError) as error:
        refusal = refused(path, position, error)
    except RecordError as error:
        refusal = error
    if rows:
        yield positions, rows
    if refusal is not None:
        raise refusal


def _grouped(
    path: Path, columns: Columns, known: Sequence[str], texts: Texts
) -> Iterator[tuple[bool, RewardGroups]]:
    """Chunks as groups, and whether the first of each goes on the last of the chunk before."""
    last: Key | None = None
    for positions, rows in _chunks(path, columns, known):
        groups = [row.group for row in rows]
        begins = np.fromiter(chain([True], map(ne, groups[1:], groups)), np.bool_, len(rows))
        if has(rows, "step"):
            steps = np.fromiter([row.step for row in rows], np.int64, len(rows))
            begins[1:] |= steps[1:] != steps[:-1]
        offsets = np.append(np.flatnonzero(begins), len(rows))
        made = groups_of(str(path), rows, offsets, texts, _classes(rows, columns), positions)
        yield (int(made.step[0]), groups[0]) == last, made
        last = (int(made.step[-1]), groups[-1])
    if last is None:
        raise no_rollout(path)


def _classes(rows: Sequence[Any], columns: Columns) -> list[str] | None:
    if not has(rows, "label"):
        return None
    if columns.label is None:
        return [row.label if isinstance(row.label, str) else _class(row, columns) for row in rows]
    return [_class(row, columns) for row in rows]


def _class(row: Any, columns: Columns) -> str:
    name = columns.label or columns.names.get("label", "label")
    return value_at({columns.of("label"): row.label}, name)


def _row(row: Any, position: int, columns: Columns, prompts: Prompts) -> RolloutRow:
    components = {name: number(value) for name, value in (row.components or {}).items()}
    weights = row.weights or {}
    return RolloutRow(
        group=(row.step, row.group),
        name=str(row.group),
        prompt=prompts.add(row.prompt),
        position=position,
        step=row.step,
        reward=number(row.reward),
        advantage=row.advantage,
        masked=row.masked,
        tokens=row.tokens,
        response=digest(row.response),
        label=_class(row, columns),
        status=row.status or "",
        components=components,
        weights={name: number(weights.get(name, 1.0)) for name in components},
    )


NEUTRAL_JSONL = Format(
    name="neutral-jsonl",
    container=containers.JSONL,
    needs=("group", "reward"),
    patterns=("*.jsonl",),
    read=_read,
    writer="anybody, by rollouts.schema.json",
    met="real writer: GroupRecorder in TRL 0.15.1 and 1.16.0",
    takes=("components", "columns"),
)
NEUTRAL_JSON = replace(
    NEUTRAL_JSONL,
    name="neutral-json",
    container=containers.JSON,
    patterns=("*.json",),
    met="real writer: json.dump of Python",
)
NEUTRAL_CSV = replace(
    NEUTRAL_JSONL,
    name="neutral-csv",
    container=containers.CSV,
    patterns=("*.csv", "*.tsv"),
    met="real writer: pandas 2.2.3, DataFrame.to_csv",
)
NEUTRAL_PARQUET = replace(
    NEUTRAL_JSONL,
    name="neutral-parquet",
    container=containers.PARQUET,
    patterns=("*.parquet",),
    met="real writer: pandas 2.2.3, DataFrame.to_parquet",
)


# ``completions.jsonl`` of a run directory, which ``records.reader`` checks. A step is a group. A frozen run
# has no rewards, which is said.


def _read_own(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    refuse_unknown_label(path, streams.first_record(path), options.label)
    lines = itertools.count(1)
    groups = ([_own_row(record, next(lines), options) for record in group] for group in read_groups(path))
    yield from batches(str(path), groups, options.rows, _untrained)


def _untrained(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    rewards = [row.reward for group in groups for row in group]
    if not all(map(math.isnan, rewards)):
        return ()
    says = "a run that trains nothing, as a frozen one, records scores and no reward"
    return (Assumption(UNTRAINED, says, {"completions": len(rewards)}),)


def _own_row(record: CompletionRecord, position: int, options: ReadOptions) -> RolloutRow:
    base = record.base_scores
    return RolloutRow(
        group=record.step,
        position=position,
        step=count(record.step),
        reward=number(record.reward),
        advantage=record.advantage,
        tokens=count(record.completion_tokens),
        response=digest(record.response_sha256),
        label=value_at(msgspec.to_builtins(record), options.label or "operator"),
        status=record.outcome.value,
        improvement=record.score - max(base) if record.score is not None and base else NAN,
        admitted=int(record.archive_event is ArchiveEvent.ADMITTED),
        metrics={**(record.components or {}), "score": number(record.score)}
        | ({PROGRAM: program_number(record.program_sha256)} if record.program_sha256 else {}),
    )


S2S = Format(
    name="s2s",
    container=containers.JSONL,
    needs=("step", "index", "outcome", "reward", "advantage", "archive_event"),
    patterns=("completions.jsonl",),
    read=_read_own,
    writer="this project, records/schema.py",
    met="real writer: runs of this project",
)
