"""What a file is made of: its container, by its first bytes, and its columns; and files that are no text.

Parquet comes a bounded batch at a time, and pyarrow is loaded when it is met. SQLite is opened so that
nothing beside or within a database changes, and nothing in it is run.
"""

import io
import os
import re
import shlex
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from search_to_signal.audit.importers import streams
from search_to_signal.base.errors import ConfigError, RecordError, reason

ROWS = 4096
# Bytes that are unpacked of a file of any size, and times its size.
ROOM, GROWTH = 64 * 1024 * 1024, 250
# Columns within columns, and groups of rows.
_DEEPEST = 4096
# How Thrift's compact form begins a page: its kind, and its size unpacked.
_PAGE = re.compile(rb"\x15(?P<kind>[\x00\x04\x06])\x15(?P<size>[\x80-\xff]*[\x00-\x7f])")
_DICTIONARY = b"\x04"
# ArrowInvalid is a ValueError, others are not.
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, OverflowError, NotImplementedError, MemoryError)


def parquet_columns(path: Path) -> tuple[str, ...]:
    """Names of the columns in order. Raises RecordError for a file that is damaged or cut off."""
    with _opened(path) as table:
        return tuple(table.schema_arrow.names)


def number_columns(path: Path) -> tuple[str, ...]:
    """Names of the columns that hold numbers, in order; a column without a value counts as one."""
    import pyarrow.types as kinds

    with _opened(path) as table:
        schema = table.schema_arrow
        return tuple(
            field.name
            for field in schema
            if kinds.is_floating(field.type) or kinds.is_integer(field.type) or kinds.is_null(field.type)
        )


def read_table(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield row number (from 0) and record; only the named columns are read.

    Raises RecordError for a file that is damaged, cut off, or lacks a column.
    """
    number = 0
    missing = sorted(set(columns) - set(parquet_columns(path)))
    if missing:
        raise RecordError(
            f"{path} has no column {', '.join(missing)}; it differs from the first file of its log"
        )
    with _opened(path) as table:
        try:
            left = ROOM + GROWTH * os.path.getsize(path)
            # Few where a dictionary is large: each row may hold a text that is as long as the whole of it.
            with streams.regular(path) as file:
                sizes = [_dictionary_size(file, one) for one in _chunks(table.metadata) if one.num_values]
            rows = min(ROWS, max(1, ROOM // max([1, *sizes])))
            for batch in table.iter_batches(batch_size=rows, columns=list(columns)):
                # Numbers of a dictionary repeat a text for nothing.
                plain = (
                    one.dictionary_decode() if hasattr(one, "dictionary_decode") else one
                    for one in batch.columns
                )
                whole = batch.from_arrays(list(plain), names=batch.schema.names)
                left -= whole.nbytes
                if left < 0:
                    raise _swollen(path)
                for record in whole.to_pylist():
                    yield number, record
                    number += 1
        except _UNREADABLE as error:
            raise _damaged(path, error) from error


def _chunks(metadata: Any) -> Iterator[Any]:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return (group.column(at) for group in groups for at in range(group.num_columns))


def _dictionary_size(file: io.BufferedReader, chunk: Any) -> int:
    """Bytes of the unpacked dictionary by the header of the first page; 0 where that holds data."""
    file.seek(min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset))
    page = _PAGE.match(file.read(16))
    if page is None:
        raise ValueError("a column begins with no page")
    size = sum((byte & 127) << 7 * at for at, byte in enumerate(page["size"])) // 2
    return size if page["kind"] == _DICTIONARY else 0


def _opened(path: Path) -> Any:
    """The file; raises RecordError for one that is damaged or unpacks to far more than it holds."""
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ConfigError(
            "reading Parquet needs pyarrow: install search-to-signal[parquet], or `pip install pyarrow`"
        ) from error
    try:
        size = os.path.getsize(path)
        table = parquet.ParquetFile(path, thrift_container_size_limit=_DEEPEST)
        unpacked = sum(chunk.total_uncompressed_size for chunk in _chunks(table.metadata))
        values = sum(chunk.num_values for chunk in _chunks(table.metadata))
    except _UNREADABLE as error:
        raise _damaged(path, error) from error
    if values > ROOM // 16 + size * GROWTH or unpacked > ROOM + size * GROWTH:
        raise _swollen(path)
    return table


def _swollen(path: Path) -> RecordError:
    return RecordError(f"{path} unpacks to more than {GROWTH} times its size: is this a log?")


def _damaged(path: Path, error: Exception) -> RecordError:
    return RecordError(
        f"{path}: not a complete Parquet file ({' '.join(str(error).split())}); copy the file again"
    )


# Bytes of a database with a pending journal, which is copied to be read.
LARGEST = 4 * 1024 * 1024 * 1024
_TRIES = 3
# Instructions of SQLite's machine: so many, and so many per byte; a log takes less than one per byte.
_WORK, _PER_BYTE, _STEP = 50_000_000, 20, 100_000
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY name"


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads tables and no view, and calls no function.

    Raises RecordError for a database that is damaged or locked, and for one that takes work without end.

    A database without a journal is opened as immutable: even a reader would otherwise leave files beside it.
    One with a write-ahead log, or with a transaction that was not ended, is copied with it: SQLite makes or
    changes the files that it needs for them, and without their writer waits for what never comes.
    """

    def authorized(action: int, name: str | None, more: str | None, _: str | None, view: str | None) -> int:
        about = action == sqlite3.SQLITE_PRAGMA and name == "table_xinfo"
        allowed = about or (action in _READING and view is None)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    with ExitStack() as stack:
        try:
            streams.regular(path).close()
            found = path.resolve()
            journals = [found.with_name(found.name + end) for end in ("-wal", "-journal")]
            files = [found, *(one for one in journals if one.is_file() and one.stat().st_size)]
            uri = f"{found.as_uri()}?mode=ro&immutable=1"
            if len(files) > 1:
                directory = Path(stack.enter_context(TemporaryDirectory()))
                uri = _copied(files, directory).as_uri()
            connection = stack.enter_context(closing(sqlite3.connect(uri, uri=True)))
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            work = _WORK + _PER_BYTE * sum(file.stat().st_size for file in files)
            left = iter(range(work // _STEP))
            connection.set_progress_handler(lambda: next(left, None) is None, _STEP)
            connection.set_authorizer(authorized)
            yield connection
        except (sqlite3.Error, UnicodeDecodeError, OSError, OverflowError) as error:
            raise RecordError(
                f"{path}: unreadable database ({reason(error)}); copy it again when its writer is done"
            ) from error


def _copied(files: Sequence[Path], directory: Path) -> Path:
    """A database and its journal as they were at one time. Raises OSError where they change or are large."""
    for _ in range(_TRIES):
        before = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        if sum(size for size, _ in before) > LARGEST:
            raise OSError(f"it has a pending journal and over {LARGEST} bytes")
        for file in files:
            shutil.copyfile(file, directory / file.name)
        if before == [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]:
            return directory / files[0].name
    raise OSError("it changed while it was read")


def table_columns(path: Path) -> tuple[str, ...]:
    """Every column of every table, as ``table.column``, sorted; none of one that computes columns."""
    with read_only(path) as connection:
        names = [table["name"] for table in connection.execute(_TABLES)]
        asked = {name: 'PRAGMA table_xinfo("{}")'.format(name.replace('"', '""')) for name in names}
        columns = {name: connection.execute(pragma).fetchall() for name, pragma in asked.items()}
    plain = [name for name in names if not any(column["hidden"] for column in columns[name])]
    return tuple(f"{name}.{column['name']}" for name in plain for column in columns[name])


JSONL, JSON, CSV, PARQUET, SQLITE = "JSON Lines", "JSON", "CSV", "Parquet", "SQLite"
_DUMP = "torch.save"
# What makes lines of JSON of a dump of samples, with the torch that wrote it.
_CONVERT = (
    "import json, sys, torch; d = torch.load(sys.argv[1], weights_only=True); [print(json.dumps("
    "{'step': d['rollout_id'], **s}, default=lambda v: v.tolist())) for s in d['samples']]"
)


@dataclass(frozen=True)
class Sniffed:
    """Container and columns of one file."""

    container: str
    columns: tuple[str, ...]


def sniff(path: Path) -> Sniffed:
    """Container and columns of a file; raises RecordError for one that is empty, damaged or unknown."""
    container = container_of(path)
    tables = {PARQUET: parquet_columns, CSV: streams.csv_columns, SQLITE: table_columns}
    if container in tables:
        return Sniffed(container, tables[container](path))
    record = next(iter(streams.read_document(path)), {}) if container == JSON else streams.first_record(path)
    return Sniffed(container, tuple(map(str, record)))


def container_of(path: Path) -> str:
    """The container of a file by its first bytes.

    Raises RecordError for a file that is empty or unknown, and for a pickle, which is a program: it is never
    read, and the line says how to convert it.
    """
    start = streams.start_of(path, 4096)
    text = start.lstrip()
    if not text:
        raise RecordError(f"{path} is empty: it holds no groups; give a log with rollouts")
    for magic, container in _MAGIC.items():
        if start.startswith(magic):
            if container == _DUMP:
                names = map(shlex.quote, (path.name, f"{path.stem}.jsonl"))
                raise RecordError(
                    f"{path} is a pickle, as {_DUMP} writes it, and can run any code when "
                    f'it is read: if you trust it, convert it with python -c "{_CONVERT}" {" > ".join(names)}'
                )
            return container
    # The mark of a packer is no suffix of a table.
    name = path.stem if path.suffix in (".gz", ".zst") else path.name
    if Path(name).suffix.lower() in streams.SUFFIXES:
        return CSV
    if text.startswith(b"["):
        return JSON
    if text.startswith(b"{"):
        return JSON if text.split(b"\n", 1)[0].strip() == b"{" else JSONL
    raise RecordError(f"{path} is not a log that can be read: it is not Parquet, SQLite, JSON or CSV")


def is_cut(path: Path) -> bool:
    """Whether the last line of a file of lines was cut, or the end of a packed one."""
    cut = {JSONL: streams.cut_end, CSV: streams.cut_row}.get(container_of(path))
    return cut is not None and cut(path)


_MAGIC = {
    b"PAR1": PARQUET,
    b"SQLite format 3\x00": SQLITE,
    b"PK\x03\x04": _DUMP,
    b"\x80": _DUMP,
}
