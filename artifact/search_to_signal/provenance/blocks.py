"""Checks of small blocks, so that damage to a file can be told by line and byte.

SHA256SUMS says that a file changed; this index, read only then, says where. It holds a CRC-32 per block
of at most 64 bytes; blocks begin anew at every line of a text file, so that damage to one line leaves the
others alone.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from search_to_signal.errors import RunDirectoryError

BLOCKS = "BLOCKS.jsonl"
BLOCK_BYTES = 64
_TEXT = (".jsonl", ".json", ".csv", ".md", ".html", ".toml", ".log", ".svg")


class Blocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file's checks: eight hex digits per block, one string per line (one for all of a binary file)."""

    path: str
    size: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Damage:
    """Bytes ``first`` to ``last`` (from 0, both included) of a line, or of the file when ``line`` is None."""

    line: int | None
    first: int
    last: int


def _pieces(path: Path, data: bytes) -> list[bytes]:
    if path.suffix not in _TEXT:
        return [data]
    *lines, rest = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([rest] if rest else [])


def _checks(piece: bytes) -> str:
    starts = range(0, len(piece), BLOCK_BYTES)
    return "".join(f"{zlib.crc32(piece[start : start + BLOCK_BYTES]):08x}" for start in starts)


def blocks_of(directory: Path, path: Path) -> Blocks:
    """The checks of a file below a directory."""
    data = path.read_bytes()
    pieces = _pieces(path, data)
    return Blocks(str(path.relative_to(directory)), len(data), tuple(_checks(piece) for piece in pieces))


def read_blocks(directory: Path) -> dict[str, Blocks]:
    """The recorded checks by relative path, none where there is no index; raises RunDirectoryError."""
    path = directory / BLOCKS
    if not path.is_file():
        return {}
    try:
        rows = [msgspec.json.decode(line, type=Blocks) for line in path.read_bytes().splitlines()]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RunDirectoryError(f"cannot read {path}: {error}; restore the file") from error
    return {row.path: row for row in rows}


def _differing(recorded: str, piece: bytes) -> Iterator[tuple[int, int]]:
    found = _checks(piece)
    for start in range(0, max(len(recorded), len(found)), 8):
        if recorded[start : start + 8] != found[start : start + 8]:
            first = start // 8 * BLOCK_BYTES
            yield first, min(first + BLOCK_BYTES, max(len(piece), first + 1)) - 1


def _span(line: int | None, recorded: str, piece: bytes) -> Damage:
    spans = list(_differing(recorded, piece))
    return Damage(line, spans[0][0], spans[-1][1])


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def locate(recorded: Blocks, path: Path) -> list[Damage]:
    """Where a file differs from its recorded checks, in order; lines are numbered from 1.

    Where the number of lines changed, the first damage is the first line that differs and the last one the
    last line before the unchanged end; what lies between cannot be told apart.
    """
    pieces = _pieces(path, path.read_bytes())
    text = path.suffix in _TEXT
    found = [_checks(piece) for piece in pieces]
    if len(found) == len(recorded.lines):
        return [
            _span(number if text else None, old, piece)
            for number, (old, new, piece) in enumerate(zip(recorded.lines, found, pieces, strict=True), 1)
            if old != new
        ]
    head = _common(recorded.lines, found)
    tail = _common(recorded.lines[head:][::-1], found[head:][::-1])
    return [
        Damage(head + offset + 1, 0, max(len(piece), 1) - 1)
        for offset, piece in enumerate(pieces[head : len(pieces) - tail] or [b""])
    ]
