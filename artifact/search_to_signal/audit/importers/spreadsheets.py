"""CSV files as rows: comma, semicolon or tab, whichever the first line has most of; cells are texts."""

import csv
import io
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from search_to_signal.audit.importers.streams import DAMAGED, ends_early, opened
from search_to_signal.errors import RecordError

SUFFIXES = (".csv", ".tsv")
# Characters of a cell, and bytes of a line.
_LONGEST = 64 * 1024 * 1024
_UNREADABLE: tuple[type[Exception], ...] = (*DAMAGED, csv.Error)
# A response may be longer than the 131,072 characters that csv allows a cell. The limit belongs to the
# process: readers that set it back let one another's limit slip when they end in another order.
csv.field_size_limit(_LONGEST)


def csv_columns(path: Path) -> tuple[str, ...]:
    """Names of the columns in order. Raises RecordError for a file that is no text."""
    return tuple(next((record for _, record in read_csv(path)), {})) or tuple(_header(path))


def read_csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number (from 1, the last of a row's lines) and record; an empty cell is None.

    A last row that was cut is left out. Raises RecordError, naming the line, for a row with more or fewer
    cells than the header, and for a file that is damaged or no text.
    """
    with opened(path) as stream:
        rows = _rows(path, stream)
        header = next(rows, _Row(0, [])).cells
        if len(set(header)) < len(header):
            raise RecordError(f"{path}:1: two columns have one name: rename one of {', '.join(header)}")
        for number, cells, ended in rows:
            if len(cells) < len(header) and not ended:
                return
            if len(cells) != len(header):
                raise RecordError(
                    f"{path}:{number}: {len(cells)} cells under {len(header)} names: quote cells that hold "
                    "the separator, or repair the row"
                )
            yield number, {name: cell or None for name, cell in zip(header, cells, strict=True)}


def cut_row(path: Path) -> bool:
    """Whether the last row of a file was cut: its writer was stopped, or still writes."""
    with opened(path) as stream:
        rows = _rows(path, stream)
        last = header = next(rows, _Row(0, []))
        for row in rows:
            last = row
    return not last.ended and len(last.cells) < len(header.cells)


class _Row(NamedTuple):
    """Number of the last line and cells of a row; no cells for the start of one that never ends."""

    number: int
    cells: list[str]
    ended: bool = True


def _line(line: bytes) -> str:
    if len(line) == _LONGEST:
        raise csv.Error(f"a line of over {_LONGEST} bytes")
    return line.decode()


def _header(path: Path) -> list[str]:
    with opened(path) as stream:
        return next(_rows(path, stream), _Row(0, [])).cells


def _rows(path: Path, stream: io.BufferedIOBase) -> Iterator[_Row]:
    """Every row that is not blank."""
    number, last = 0, b"\n"

    def lines() -> Iterator[str]:
        nonlocal last
        for last in iter(lambda: stream.readline(_LONGEST), b""):
            yield _line(last)

    try:
        text = lines()
        first = next(text, "")
        separator = max(",;\t", key=first.count)
        reader = csv.reader(chain([first], text), delimiter=separator, strict=True)
        for cells in reader:
            number = reader.line_num
            if cells:
                yield _Row(number, cells, last.endswith(b"\n"))
    except _UNREADABLE as error:
        if ends_early(error) or (len(last) < _LONGEST and not last.endswith(b"\n")):
            yield _Row(number + 1, [], ended=False)
            return
        raise RecordError(
            f"{path}:{number + 1}: unreadable from here on ({error}); save it again as CSV in UTF-8"
        ) from error
