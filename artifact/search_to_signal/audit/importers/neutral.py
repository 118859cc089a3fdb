"""The neutral log: a rollout per row of JSON Lines, a JSON list, CSV or Parquet, by ``rollouts.schema.json``.

Rows of one ``step`` and ``group`` are one group, wherever they stand; those that a resumed run sampled again
are a group of their own. A row whose reward is a list is a row for each entry. Columns beyond the schema are
left alone; ``label`` may name one of them. A caller who says what columns are called
(``ReadOptions.columns``) has any such file read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.audit.groups import UNKNOWN, RewardGroups, with_advantages
from search_to_signal.audit.importers.base import Format, ReadOptions, value_at
from search_to_signal.audit.importers.columns import Table, Texts, assembled, has, table_of
from search_to_signal.audit.importers.containers import CSV, JSON, JSONL, PARQUET, container_of, sniff
from search_to_signal.audit.importers.documents import read_document
from search_to_signal.audit.importers.gathering import Beginnings, Key, joined, runs_of, until_damaged
from search_to_signal.audit.importers.lines import Lines, read_chunks, records_of
from search_to_signal.audit.importers.prompts import Prompts
from search_to_signal.audit.importers.rollouts import Columns, refused
from search_to_signal.audit.importers.rows import RolloutRow, batches, digest, noted, number
from search_to_signal.audit.importers.spreadsheets import read_csv
from search_to_signal.audit.importers.tables import parquet_columns, read_table
from search_to_signal.errors import RecordError

# Lines or rows that are read together, with the position of each.
Chunk = tuple[Sequence[int], list[Any]]
Records = Iterable[tuple[int, dict[str, Any]]]
# Rows that are made into columns at once where they are no lines of JSON.
_ROWS = 4096


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of a file; raises RecordError, naming line or row, for one that breaks the schema.

    The file is read twice, first for the steps and groups of its rows alone; once with ``together``.
    """
    parts = dict.fromkeys(options.components or options.weights, 1.0) | dict(options.weights)
    columns = Columns(options.columns, options.label, parts)
    known = _known(path, columns)
    groups = _groups(path, columns, known, options)
    yield from map(with_advantages, groups) if columns.of("advantage") in known else groups


def _groups(
    path: Path, columns: Columns, known: Sequence[str], options: ReadOptions
) -> Iterator[RewardGroups]:
    if options.together:
        begun = Beginnings(str(path))
        yield from _batches(path, columns, known, options, begun.add)
        begun.check()
        return
    runs = runs_of(until_damaged(_keys(path, columns)))
    if runs.whole:
        yield from _batches(path, columns, known, options, lambda keys: None)
        return
    rows = (
        _row(row, at, columns, options.prompts)
        for positions, chunk in _chunks(path, columns, ())
        for at, row in zip(positions, chunk, strict=True)
    )
    gathered = batches(str(path), joined(runs, rows), options.rows, prompts=options.prompts)
    yield from noted(gathered, runs.notes())


def _known(path: Path, columns: Columns) -> tuple[str, ...]:
    """Columns of the first row; raises RecordError where the caller names one that the file lacks."""
    names = [*columns.names.values(), *columns.parts, *([columns.label] if columns.label else [])]
    known = sniff(path).columns
    missing = [name for name in names if name not in known and name.split(".")[0] not in known]
    if missing:
        raise RecordError(f"{path} has no column {', '.join(missing)}: choose one of {', '.join(known)}")
    return known


def _records(path: Path, columns: Columns) -> Records:
    container = container_of(path)
    if container == CSV:
        return read_csv(path)
    if container == JSON:
        return enumerate(read_document(path))
    wanted = [name for name in parquet_columns(path) if name in columns.wanted]
    return read_table(path, wanted)


def _keys(path: Path, columns: Columns) -> Iterator[Key]:
    """Step and group of every row, of neighbours with the same of one at least."""
    if container_of(path) != JSONL:
        yield from _keys_of(path, _records(path, columns), columns)
        return
    group: tuple[str, Any, Any] = ("group", int | str, msgspec.field(name=columns.of("group")))
    step = ("step", int, msgspec.field(name=columns.of("step"), default=UNKNOWN))
    decoders = (msgspec.json.Decoder(msgspec.defstruct("Key", [group, step], gc=False)),)
    for lines in read_chunks(path):
        rows = _decoded(decoders if columns.decoders(()) else (), lines)
        if rows is None:
            yield from _keys_of(path, records_of(path, lines), columns)
        else:
            yield from ((row.step, row.group) for row in rows)


def _keys_of(path: Path, records: Records, columns: Columns) -> Iterator[Key]:
    for position, record in records:
        try:
            yield from map(columns.key, columns.unlisted(record))
        except (ValueError, TypeError, OverflowError) as error:
            raise refused(path, position, error) from error


def _decoded(decoders: "Iterable[msgspec.json.Decoder[Any]]", lines: Lines) -> list[Any] | None:
    """A row for each line; None where one is blank, or is not as the decoders want it."""
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
    if container_of(path) != JSONL:
        yield from _chunks_of(path, _records(path, columns), columns)
        return
    decoders = columns.decoders(known)
    for lines in read_chunks(path):
        rows = _decoded(decoders, lines)
        if rows is None:
            yield from _chunks_of(path, records_of(path, lines), columns)
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


def _batches(
    path: Path,
    columns: Columns,
    known: Sequence[str],
    options: ReadOptions,
    begun: Callable[[Sequence[Key]], None],
) -> Iterator[RewardGroups]:
    """Batches of a file in which rows of one group stand together, as in ``assembled``."""
    texts = Texts(options.prompts)
    tables = _tables(_chunks(path, columns, known), columns, texts)
    yield from assembled(str(path), tables, options.rows, texts, begun)


def _tables(chunks: Iterable[Chunk], columns: Columns, texts: Texts) -> Iterator[Table]:
    last: Key | None = None
    for positions, rows in chunks:
        table = table_of(rows, _classes(rows, columns), positions, texts)
        steps = table["step"]
        table["begins"][0] = (steps[0], rows[0].group) != last
        last = (steps[-1], rows[-1].group)
        yield table


def _classes(rows: Sequence[Any], columns: Columns) -> list[str] | None:
    """The class of each row; None where they lack the column."""
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


JSONL_FORMAT = Format(
    name="neutral-jsonl",
    container=JSONL,
    needs=("group", "reward"),
    patterns=("*.jsonl",),
    read=read,
    writer="anybody, by rollouts.schema.json",
    met="real writer: GroupRecorder in TRL 0.15.1 and 1.16.0",
    sums=True,
    maps=True,
)
JSON_FORMAT = replace(
    JSONL_FORMAT,
    name="neutral-json",
    container=JSON,
    patterns=("*.json",),
    met="real writer: json.dump of Python",
)
CSV_FORMAT = replace(
    JSONL_FORMAT,
    name="neutral-csv",
    container=CSV,
    patterns=("*.csv", "*.tsv"),
    met="real writer: pandas 2.2.3, DataFrame.to_csv",
)
PARQUET_FORMAT = replace(
    JSONL_FORMAT,
    name="neutral-parquet",
    container=PARQUET,
    patterns=("*.parquet",),
    met="real writer: pandas 2.2.3, DataFrame.to_parquet",
)
