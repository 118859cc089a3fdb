"""Parquet files as rows, a bounded batch at a time. pyarrow is loaded when a Parquet file is met."""

import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from search_to_signal.audit.importers.streams import regular
from search_to_signal.errors import ConfigError, RecordError

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
            rows = _rows_at_once(path, table.metadata)
            for batch in table.iter_batches(batch_size=rows, columns=list(columns)):
                whole = _decoded(batch)
                left -= whole.nbytes
                if left < 0:
                    raise _swollen(path)
                for record in whole.to_pylist():
                    yield number, record
                    number += 1
        except _UNREADABLE as error:
            raise _damaged(path, error) from error


def _decoded(batch: Any) -> Any:
    """Rows with their texts in the place of numbers of a dictionary, which repeat one for nothing."""
    plain = [one.dictionary_decode() if hasattr(one, "dictionary_decode") else one for one in batch.columns]
    return batch.from_arrays(plain, names=batch.schema.names)


def _chunks(metadata: Any) -> Iterator[Any]:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return (group.column(at) for group in groups for at in range(group.num_columns))


def _rows_at_once(path: Path, metadata: Any) -> int:
    """Few where a dictionary is large: each row may hold a text that is as long as the whole of it."""
    with regular(path) as file:
        sizes = [_dictionary_size(file, chunk) for chunk in _chunks(metadata) if chunk.num_values]
    return min(ROWS, max(1, ROOM // max([1, *sizes])))


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
    parquet = _parquet()
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
