"""The neutral log: a rollout per row of JSON Lines, a JSON list, CSV or Parquet, by ``rollouts.schema.json``.

Rows of one ``step`` and ``group`` are one group, wherever they stand. Columns beyond the schema are left
alone; ``label`` may name one of them. A caller who says what columns are called (``ReadOptions.columns``)
has any such file read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.audit.groups import UNKNOWN, RewardGroups, excerpt
from search_to_signal.audit.importers.base import Format, ReadOptions, value_at
from search_to_signal.audit.importers.columns import Codes, Table, assembled, beginnings, table_of
from search_to_signal.audit.importers.documents import read_document
from search_to_signal.audit.importers.gathering import Key, joined, runs_of, until_damaged
from search_to_signal.audit.importers.lines import Lines, read_chunks, read_lines, records_of
from search_to_signal.audit.importers.rollouts import Columns, refused
from search_to_signal.audit.importers.rows import Row, batches, digest, number
from search_to_signal.audit.importers.sniffing import CSV, JSON, JSONL, PARQUET, container_of, sniff
from search_to_signal.audit.importers.spreadsheets import read_csv
from search_to_signal.audit.importers.tables import parquet_columns, read_table
from search_to_signal.errors import RecordError

# Lines or rows that are read together, with the position of each.
Chunk = tuple[Sequence[int], list[Any]]
Records = Iterable[tuple[int, dict[str, Any]]]
# Rows that are made into columns at once where they are no lines of JSON.
_ROWS = 4096


class _Key(msgspec.Struct, gc=False):
    """What a line is read for before its rows are."""

    group: int | str
    step: int = -1


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of a file; raises RecordError, naming line or row, for one that breaks the schema.

    The file is read twice, first for the steps and groups of its rows alone.
    """
    parts = dict.fromkeys(options.components or options.weights, 1.0) | dict(options.weights)
    columns = Columns(options.columns, options.label, parts)
    records = _records(path, columns)
    lines = container_of(path) == JSONL
    _refuse_unknown(path, columns)
    keys = _keys_of_lines(path, columns) if lines else _keys(path, records(), columns)
    runs = runs_of(until_damaged(keys))
    chunks = _chunks_of_lines(path, columns) if lines else _chunks(path, records(), columns)
    if runs.whole:
        labels, statuses = Codes(), Codes()
        tables = _tables(chunks, columns, labels, statuses)
        yield from assembled(str(path), tables, options.rows, labels, statuses)
        return
    rows = (
        _row(row, at, columns)
        for positions, found in chunks
        for at, row in zip(positions, found, strict=True)
    )
    yield from batches(str(path), joined(runs, rows), options.rows)


def _records(path: Path, columns: Columns) -> Callable[[], Records]:
    """The rows of a file of any container, as often as they are asked for."""
    container = container_of(path)
    if container == CSV:
        return lambda: read_csv(path)
    if container == JSON:
        return lambda: enumerate(read_document(path))
    if container == PARQUET:
        wanted = [name for name in parquet_columns(path) if name in columns.wanted]
        return lambda: read_table(path, wanted)
    return lambda: read_lines(path)


def _refuse_unknown(path: Path, columns: Columns) -> None:
    """Raise RecordError for a column that the caller names and the file lacks: a slip is no missing value."""
    names = [*columns.names.values(), *columns.parts, *([columns.label] if columns.label else [])]
    known = sniff(path).columns
    missing = [name for name in names if name not in known and name.split(".")[0] not in known]
    if missing:
        raise RecordError(f"{path} has no column {', '.join(missing)}: choose one of {', '.join(known)}")


def _keys(path: Path, records: Records, columns: Columns) -> Iterator[Key]:
    for position, record in records:
        try:
            yield columns.key(record)
        except (ValueError, TypeError, OverflowError) as error:
            raise refused(path, position, error) from error


def _keys_of_lines(path: Path, columns: Columns) -> Iterator[Key]:
    group: tuple[str, Any, Any] = ("group", int | str, msgspec.field(name=columns.of("group")))
    step = ("step", int, msgspec.field(name=columns.of("step"), default=UNKNOWN))
    decoder = msgspec.json.Decoder(msgspec.defstruct("Key", [group, step], gc=False))
    for lines in read_chunks(path):
        rows = _decoded(decoder, lines) if columns.decoder else None
        if rows is None:
            yield from _keys(path, records_of(path, lines), columns)
        else:
            steps, groups = [row.step for row in rows], [row.group for row in rows]
            yield from ((steps[row], groups[row]) for row in beginnings(steps, groups))


def _decoded(decoder: "msgspec.json.Decoder[Any]", lines: Lines) -> list[Any] | None:
    """A row for each line; None where one is blank, or is not as the decoder wants it."""
    try:
        rows = decoder.decode_lines(lines.text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return rows if len(rows) == lines.size else None


def _chunks_of_lines(path: Path, columns: Columns) -> Iterator[Chunk]:
    decoder = columns.decoder
    for lines in read_chunks(path):
        rows = None if decoder is None else _decoded(decoder, lines)
        if rows is None:
            yield from _chunks(path, records_of(path, lines), columns)
        else:
            yield range(lines.first, lines.first + lines.size), rows


def _chunks(path: Path, records: Records, columns: Columns) -> Iterator[Chunk]:
    """Rows from records; those before one that is refused are handed out first."""
    positions, rows, refusal = list[int](), list[Any](), None
    try:
        for position, record in records:
            rows.append(columns.rollout(record))
            positions.append(position)
            if len(rows) == _ROWS:
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


def _tables(chunks: Iterable[Chunk], columns: Columns, labels: Codes, statuses: Codes) -> Iterator[Table]:
    last: Key | None = None
    for positions, rows in chunks:
        plain = columns.label is None
        classes = [row.label or "" if plain else _class(row, columns) for row in rows]
        table = table_of(rows, classes, positions, labels, statuses)
        table["begins"][0] = (rows[0].step, rows[0].group) != last
        last = (rows[-1].step, rows[-1].group)
        yield table


def _class(row: Any, columns: Columns) -> str:
    if row.label is None:
        return ""
    if columns.label is None:
        return str(row.label)
    return value_at({columns.of("label"): row.label}, columns.label)


def _row(row: Any, position: int, columns: Columns) -> Row:
    components = {name: number(value) for name, value in (row.components or {}).items()}
    weights = row.weights or {}
    return Row(
        group=(row.step, row.group),
        name=str(row.group),
        prompt=excerpt(row.prompt),
        position=position,
        step=row.step,
        reward=number(row.reward),
        advantage=number(row.advantage),
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
    patterns=("*.jsonl", "*.jsonl.gz", "*.jsonl.zst"),
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
    patterns=("*.csv", "*.tsv", "*.csv.gz", "*.csv.zst"),
    met="real writer: pandas 2.2.3, DataFrame.to_csv",
)
PARQUET_FORMAT = replace(
    JSONL_FORMAT,
    name="neutral-parquet",
    container=PARQUET,
    patterns=("*.parquet",),
    met="real writer: pandas 2.2.3, DataFrame.to_parquet",
)
