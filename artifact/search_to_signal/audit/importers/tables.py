"""Parquet files as rows, a bounded batch at a time. pyarrow is loaded when a Parquet file is met."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from search_to_signal.errors import ConfigError, RecordError

ROWS = 4096


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
            for batch in table.iter_batches(batch_size=ROWS, columns=list(columns)):
                for record in batch.to_pylist():
                    yield number, record
                    number += 1
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from error


def _opened(path: Path) -> Any:
    parquet = _parquet()
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


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
