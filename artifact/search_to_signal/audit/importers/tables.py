"""Parquet files as rows, a bounded batch at a time. pyarrow is loaded when a Parquet file is met."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from search_to_signal.errors import ConfigError, RecordError

ROWS = 4096
# Bytes that are unpacked of a file of any size, and times its size; rows that are read at once at least.
ROOM, GROWTH, _FEWEST = 64 * 1024 * 1024, 250, 16
# Columns within columns, and groups of rows.
_DEEPEST = 4096
_TEXTS = ("string", "large_string", "binary", "large_binary")
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
    left = ROOM + GROWTH * os.path.getsize(path)
    with _opened(path) as table:
        try:
            for batch in table.iter_batches(batch_size=_rows_at_once(table), columns=list(columns)):
                values = list(map(_values, batch.columns))
                texts = (value for column in values for value in column if isinstance(value, str | bytes))
                left -= sum(map(len, texts))
                if left < 0:
                    raise _swollen(path)
                for row in zip(*values, strict=True):
                    yield number, dict(zip(batch.schema.names, row, strict=True))
                    number += 1
        except _UNREADABLE as error:
            raise _damaged(path, error) from error


def _values(column: Any) -> list[Any]:
    """The values of a column; equal texts are one object, as in the file."""
    if not hasattr(column, "dictionary"):
        return column.to_pylist()  # type: ignore[no-any-return]
    known = column.dictionary.to_pylist()
    return [None if at is None else known[at] for at in column.indices.to_pylist()]


def _rows_at_once(table: Any) -> int:
    """Few where one value within another may be large and is repeated by a byte."""
    groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
    chunks = (group.column(at) for group in groups for at in range(group.num_columns))
    nested: list[int] = [one.total_uncompressed_size for one in chunks if "." in one.path_in_schema]
    return min(ROWS, max(_FEWEST, ROOM // max([1, *nested])))


def _opened(path: Path) -> Any:
    """The file, its texts by number; raises RecordError for one that is damaged or unpacks to far more."""
    parquet = _parquet()
    size = os.path.getsize(path)
    try:
        schema = parquet.read_schema(path)
        texts = [field.name for field in schema if str(field.type) in _TEXTS]
        table = parquet.ParquetFile(path, read_dictionary=texts, thrift_container_size_limit=_DEEPEST)
        known = table.metadata
        unpacked = sum(known.row_group(at).total_byte_size for at in range(known.num_row_groups))
    except _UNREADABLE as error:
        raise _damaged(path, error) from error
    if known.num_rows > ROOM // 64 + size * GROWTH or unpacked > ROOM + size * GROWTH:
        raise _swollen(path)
    return table


def _swollen(path: Path) -> RecordError:
    return RecordError(f"{path} unpacks to more than {GROWTH} times its size: is this a log?")


def _damaged(path: Path, error: Exception) -> RecordError:
    return RecordError(
        f"{path}: not a whole Parquet file ({' '.join(str(error).split())}); copy the file again"
    )


def _parquet() -> ModuleType:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ConfigError(
            "reading Parquet needs pyarrow: install search-to-signal[parquet], or `pip install pyarrow`"
        ) from error
    return parquet  # type: ignore[no-any-return]
