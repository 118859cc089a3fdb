"""CSV files as rows: comma, semicolon or tab, whichever the first line has most of; cells are texts."""

import csv
import io
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from search_to_signal.audit.importers.streams import DAMAGED, opened
from search_to_signal.errors import RecordError

SUFFIXES = (".csv", ".tsv")
# Characters of a cell, and bytes of a line.
_LONGEST = 64 * 1024 * 1024
_UNREADABLE: tuple[type[Exception], ...] = (*DAMAGED, csv.Error)


def csv_columns(path: Path) -> tuple[str, ...]:
    """Names of the columns in order. Raises RecordError for a file that is no text."""
    return tuple(next((record for _, record in read_csv(path)), {})) or tuple(_header(path))


def read_csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number (from 1, the last of a row's lines) and record; an empty cell is None.

    Raises RecordError, naming the line, for a row with more or fewer cells than the header, and for a file
    that is damaged or no text.
    """
    with opened(path) as stream:
        rows = _rows(path, stream)
        header = next(rows, (0, []))[1]
        if len(set(header)) < len(header):
            raise RecordError(f"{path}:1: two columns have one name: rename one of {', '.join(header)}")
        for number, cells in rows:
            if len(cells) != len(header):
                raise RecordError(
                    f"{path}:{number}: {len(cells)} cells under {len(header)} names: quote cells that hold "
                    "the separator, or repair the row"
                )
            yield number, {name: cell or None for name, cell in zip(header, cells, strict=True)}


def _line(line: bytes) -> str:
    if len(line) == _LONGEST:
        raise csv.Error(f"a line of over {_LONGEST} bytes")
    return line.decode()


def _header(path: Path) -> list[str]:
    with opened(path) as stream:
        return next(_rows(path, stream), (0, []))[1]


def _rows(path: Path, stream: io.BufferedIOBase) -> Iterator[tuple[int, list[str]]]:
    """Number of the last line and cells of every row that is not blank."""
    number = 0
    # A response may be longer than the 131,072 characters that csv allows a cell, in all readers at once.
    csv.field_size_limit(_LONGEST)
    try:
        lines = (_line(line) for line in iter(lambda: stream.readline(_LONGEST), b""))
        first = next(lines, "")
        separator = max(",;\t", key=first.count)
        reader = csv.reader(chain([first], lines), delimiter=separator, strict=True)
        for cells in reader:
            number = reader.line_num
            if cells:
                yield number, cells
    except _UNREADABLE as error:
        raise RecordError(
            f"{path}:{number + 1}: unreadable from here on ({error}); save it again as CSV in UTF-8"
        ) from error
