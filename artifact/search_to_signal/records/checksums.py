"""SHA256SUMS in plain GNU form, which ``sha256sum -c --strict`` accepts and checks.

A second list, SHA256SUMS.data, holds the hashes of PNG files' image data. Both are of the seal of
a results directory, with its archive metadata and its block index.
"""

import hashlib
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.errors import UNREADABLE, RunDirectoryError
from search_to_signal.records.files import (
    LARGEST,
    TEMPORARY,
    WHOLE,
    entries_below,
    files_named,
    is_place,
    open_regular,
    read_lines,
    read_regular,
    write_atomically,
)
from search_to_signal.records.manifest import INTERRUPTED, read_manifest, runs_below

# Hashes of PNG image data, since compression libraries pack equal images into different bytes.

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Size and mode, palette, transparency, and the packed rows. Other chunks are metadata.
_HEADER = (b"IHDR", b"PLTE", b"tRNS")
_ROWS = b"IDAT"
_PIECE = 1 << 16
# Unpacked bytes of a picture: a megabyte of zlib may hold a gigabyte.
_MOST = 1 << 29


def _chunks(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield kind and body of every chunk; raises ValueError or struct.error for a damaged file."""
    offset = len(_SIGNATURE)
    if data[:offset] != _SIGNATURE:
        raise ValueError("no PNG")
    kind = b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, offset)
        checked = data[offset + 4 : offset + 8 + length]
        (crc,) = struct.unpack_from(">I", data, offset + 8 + length)
        if zlib.crc32(checked) != crc:
            raise ValueError("damaged chunk")
        yield kind, checked[4:]
        offset += 12 + length
    if offset != len(data):
        raise ValueError("there are bytes after its end")


def _unpacked(inflate: "zlib._Decompress", packed: bytes | memoryview) -> Iterator[bytes]:
    while True:
        piece = inflate.decompress(packed, _PIECE)
        yield piece
        if len(piece) < _PIECE:
            return
        packed = inflate.unconsumed_tail


def image_sha256(path: Path) -> str | None:
    """Return the SHA-256 of a PNG's header, palette and unpacked rows; None for a damaged or huge one."""
    digest, inflate, left = hashlib.sha256(), zlib.decompressobj(), _MOST
    try:
        for kind, body in _chunks(memoryview(read_regular(path))):
            if kind in _HEADER:
                digest.update(kind + body)
            elif kind == _ROWS:
                for rows in _unpacked(inflate, body):
                    digest.update(rows)
                    if (left := left - len(rows)) < 0:
                        return None
    except (ValueError, struct.error, zlib.error):
        return None
    return digest.hexdigest() if inflate.eof and not inflate.unused_data else None


SUMS = "SHA256SUMS"
DATA_SUMS = "SHA256SUMS.data"
# The signature of the list, which cannot list it.
SIGNATURE = "SHA256SUMS.sig"
# Files of the list that were not unpacked with the others, which is known only once the list is there.
UNSHIPPED = "SHA256SUMS.unshipped"


def sha256_file(path: Path, largest: int = LARGEST) -> str:
    """Return the SHA-256 of a file of at most ``largest`` bytes, read in blocks.

    Raises RunDirectoryError for a larger one, and for a pipe or a device.
    """
    digest = hashlib.sha256()
    with open_regular(path, largest) as stream:
        while block := stream.read(1 << 17):
            digest.update(block)
    return digest.hexdigest()


def listed_files(directory: Path) -> list[Path]:
    """Return every regular file below a directory except its own lists and signature, sorted by path.

    The names of what was not shipped are left out at every depth, since the lists above are older, too.
    """
    own = {directory / f"{name}{end}" for name in (SUMS, DATA_SUMS, SIGNATURE) for end in ("", TEMPORARY)}
    files = (Path(entry) for entry in entries_below(directory) if entry.is_file(follow_symlinks=False))
    own_kind = (path for path in files if path not in own and path.name != UNSHIPPED)
    return sorted(own_kind, key=lambda path: path.parts)


def write_sums(directory: Path) -> None:
    """Write the directory's SHA256SUMS of every file below it, and SHA256SUMS.data of PNG files, atomically.

    Raises RunDirectoryError for a damaged PNG.
    """
    files = listed_files(directory)
    images = [path for path in files if path.suffix == ".png"]
    lines = [f"{_sound_image_sha256(path)}  {path.relative_to(directory)}\n" for path in images]
    (directory / DATA_SUMS).unlink(missing_ok=True)
    if lines:
        write_atomically(directory / DATA_SUMS, "".join(lines).encode())
    exact = [path for path in files if path.suffix != ".png"] + ([directory / DATA_SUMS] if lines else [])
    sums = (f"{sha256_file(path)}  {path.relative_to(directory)}\n" for path in exact)
    write_atomically(directory / SUMS, "".join(sums).encode())


def _sound_image_sha256(path: Path) -> str:
    digest = image_sha256(path)
    if digest is None:
        raise RunDirectoryError(f"{path} is not a valid PNG file: make it again")
    return digest


def _read(path: Path) -> dict[str, str]:
    sums = {}
    *lines, rest = read_regular(path).split(b"\n")
    for number, line in enumerate([*lines, *([rest] if rest else [])], start=1):
        digest, separator, name = line.decode(errors="replace").partition("  ")
        if not separator or len(digest) != 64 or rest:
            raise RunDirectoryError(f"{path}:{number}: not a checksum line; restore the file")
        if not is_place(name):
            raise RunDirectoryError(
                f"{path}:{number}: {name!r} points outside of the directory; restore the file"
            )
        if name in sums:
            raise RunDirectoryError(f"{path}:{number}: {name!r} is listed twice; restore the file")
        sums[name] = digest
    return sums


def read_sums(directory: Path) -> dict[str, str]:
    """Return the recorded SHA-256 of files by relative path.

    Raises RunDirectoryError for a missing list, and for a line that is no checksum line.
    """
    path = directory / SUMS
    if not path.is_file():
        raise RunDirectoryError(
            f"{directory} has no {SUMS}, so it is not a finished results directory: check the path, or wait "
            "until its command has finished"
        )
    return _read(path)


def read_data_sums(directory: Path) -> dict[str, str]:
    """Return the recorded hash of each PNG's image data by relative path; empty without a list.

    Raises RunDirectoryError for a line that is no checksum line.
    """
    path = directory / DATA_SUMS
    return _read(path) if path.is_file() else {}


def sum_problems(directory: Path, digest: Callable[[Path], str] = sha256_file) -> dict[str, str]:
    """Return the differences from the two lists by relative path: changed, missing and unlisted files.

    ``digest`` gives the SHA-256 of a file. Raises RunDirectoryError for an unreadable list.
    """
    exact, data = read_sums(directory), read_data_sums(directory)
    present = {str(path.relative_to(directory)): path for path in listed_files(directory)}
    if (directory / DATA_SUMS).is_file():
        present[DATA_SUMS] = directory / DATA_SUMS
    problems = {name: "missing" for name in (*exact, *data) if name not in present}
    problems |= {name: f"not listed in {SUMS}" for name in present if name not in exact and name not in data}
    for name in _changed(exact, present, digest):
        problems[name] = f"bytes differ from {SUMS}"
    for name in _changed(data, present, image_sha256):
        problems[name] = f"damaged, or its image data differ from {DATA_SUMS}"
    return dict(sorted(problems.items()))


def refuse_other_bytes(directory: Path, sums: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise RunDirectoryError that names the first of these files that is missing or has other bytes."""
    for name in names:
        if not (directory / name).is_file() or sha256_file(directory / name) != sums.get(name):
            raise RunDirectoryError(
                f"{directory / name} is missing or differs from its {SUMS}: restore it from its archive, or "
                "rerun"
            )


def nested_problems(directory: Path) -> Iterator[str]:
    """Yield the checksum lists of runs and layers that differ from the list of the whole directory."""
    whole = read_sums(directory) | read_data_sums(directory)
    for path in files_named(directory, SUMS):
        below = path.parent.relative_to(directory)
        if path.parent != directory:
            listed = read_sums(path.parent) | read_data_sums(path.parent)
            inside = f"{below.as_posix()}/"
            own = {name.removeprefix(inside): sha for name, sha in whole.items() if name.startswith(inside)}
            own.pop(SUMS, None)
            if listed != own:
                yield f"{inside}{SUMS} and {SUMS} give different checksums for the same files"


def _changed(
    sums: Mapping[str, str], present: Mapping[str, Path], digest: Callable[[Path], str | None]
) -> list[str]:
    return [name for name, recorded in sums.items() if name in present and digest(present[name]) != recorded]


# A block index that locates the changed bytes of a file, and their record.
#
# SHA256SUMS shows that a file changed; BLOCKS.jsonl shows where. It contains a CRC-32 for each block of at
# most 64 bytes. Every line of a text file starts a new block, so damage to one line does not affect the
# others.

BLOCKS = "BLOCKS.jsonl"
BLOCK_BYTES = 64
SHOWN = 5
_TEXT = (".jsonl", ".json", ".csv", ".md", ".html", ".toml", ".log", ".svg")
# The fields that identify a record, in the order of printing.
_NAMES = ("run", "checkpoint", "step", "index", "prompt", "position", "operator", "id")


class Blocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The checks of one file: eight hex digits per block, one string per line (one for a binary file)."""

    path: str
    size: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Damage:
    """Bytes ``first`` to ``last`` (from 0, both included) of a line, or of the file when ``line`` is None."""

    line: int | None
    first: int
    last: int


def _pieces(path: Path) -> list[bytes]:
    data = read_regular(path, LARGEST)
    return re.findall(rb"[^\n]*\n|[^\n]+", data) if path.suffix in _TEXT else [data]


def _checks(piece: bytes) -> str:
    starts = range(0, len(piece), BLOCK_BYTES)
    return "".join(f"{zlib.crc32(piece[start : start + BLOCK_BYTES]):08x}" for start in starts)


def blocks_of(directory: Path, path: Path) -> Blocks:
    """Return the checks of a file below a directory."""
    pieces = _pieces(path)
    name = str(path.relative_to(directory))
    return Blocks(name, sum(map(len, pieces)), tuple(map(_checks, pieces)))


def is_block_index(directory: Path) -> bool:
    """Whether the block index of a directory is that of its files as they are."""
    rows = zip_longest(_rows(directory), _indexed(directory))
    # Eight digits a block: a file that is larger than the row can be of is not read.
    return all(
        row and path and len(row) * BLOCK_BYTES >= 8 * path.stat().st_size and row == _row(directory, path)
        for row, path in rows
    )


def _row(directory: Path, path: Path) -> bytes:
    return msgspec.json.encode(blocks_of(directory, path)) + b"\n"


def _indexed(directory: Path) -> list[Path]:
    return [path for path in listed_files(directory) if path != directory / BLOCKS]


def _rows(directory: Path) -> Iterator[bytes]:
    return read_lines(directory / BLOCKS, LARGEST // 8 + WHOLE)


def write_blocks(directory: Path) -> None:
    """Write the checks of every file below a directory except the index itself, one line for each."""
    (directory / BLOCKS).write_bytes(b"".join(_row(directory, path) for path in _indexed(directory)))


def read_blocks(directory: Path) -> dict[str, Blocks]:
    """Return the recorded checks by relative path, none where there is no index.

    Raises RunDirectoryError for an unreadable index.
    """
    path = directory / BLOCKS
    if not path.is_file():
        return {}
    try:
        rows = [msgspec.json.decode(line, type=Blocks) for line in _rows(directory)]
    except UNREADABLE as error:
        raise RunDirectoryError(f"cannot read {path}: {error}; restore the file") from error
    return {row.path: row for row in rows}


def _damage(line: int | None, recorded: str, piece: bytes) -> Damage:
    """The bytes from the first block that differs to the last one."""
    actual = _checks(piece)
    starts = range(0, max(len(recorded), len(actual)), 8)
    wrong = [at // 8 for at in starts if recorded[at : at + 8] != actual[at : at + 8]]
    first, end = wrong[0] * BLOCK_BYTES, (wrong[-1] + 1) * BLOCK_BYTES
    return Damage(line, first, max(first, min(end, len(piece)) - 1))


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def locate(recorded: Blocks, path: Path) -> list[Damage]:
    """Return the damages of a file in order, by its recorded checks; lines are numbered from 1.

    Where the number of lines changed, all lines between the unchanged beginning and the unchanged end are
    damaged: it is unknown which of them were inserted or removed.
    """
    pieces = _pieces(path)
    actual = [_checks(piece) for piece in pieces]
    if len(actual) == len(recorded.lines):
        rows = enumerate(zip(recorded.lines, actual, pieces, strict=True), 1)
        text = path.suffix in _TEXT
        return [_damage(n if text else None, old, piece) for n, (old, new, piece) in rows if old != new]
    head = _common_length(recorded.lines, actual)
    tail = _common_length(recorded.lines[head:][::-1], actual[head:][::-1])
    changed = pieces[head : len(pieces) - tail] or [b""]
    return [Damage(n, 0, max(len(piece), 1) - 1) for n, piece in enumerate(changed, head + 1)]


def _identity(line: bytes) -> str:
    try:
        fields: Any = msgspec.json.decode(line)
    except UNREADABLE:
        return ""
    if not isinstance(fields, dict):
        return ""
    return ", ".join(f"{name} {fields[name]}" for name in _NAMES if fields.get(name) is not None)


def _record_text(lines: Sequence[bytes], number: int) -> str:
    own, before = (_identity(lines[n - 1]) if 1 <= n <= len(lines) else "" for n in (number, number - 1))
    if own:
        return f": the record of {own}"
    return f": no readable record, after that of {before}" if before else ": no readable record"


def _describe(path: Path, damages: Sequence[Damage]) -> Iterator[str]:
    lines = _pieces(path)
    for damage in damages:
        span = f"bytes {damage.first} to {damage.last}"
        record = _record_text(lines, damage.line) if damage.line and path.suffix == ".jsonl" else ""
        yield f"{span} of the file" if damage.line is None else f"line {damage.line}, {span}{record}"


def _explain(recorded: Blocks, path: Path) -> list[str]:
    size = path.stat().st_size
    sizes = [] if size == recorded.size else [f"{size} bytes where {recorded.size} were recorded"]
    if size > WHOLE:
        return [*sizes, "the file is too long to say which bytes differ"]
    damages = locate(recorded, path)
    if not damages:
        return ["every block is as recorded, so it was the checksum that changed, not the file"]
    more = [f"and {len(damages) - SHOWN} more places"] if len(damages) > SHOWN else []
    return [*sizes, *_describe(path, damages[:SHOWN]), *more]


def explain_changes(directory: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the changed places of every named file that the block index lists.

    Without an index it is empty; the error of an unreadable index stands under the name of the index.
    """
    if not names:
        return {}
    try:
        index = read_blocks(directory)
    except RunDirectoryError as error:
        return {BLOCKS: [str(error)]}
    return {name: _explain(index[name], directory / name) for name in names if name in index}


# RO-Crate 1.1 metadata: files, runs and software of a results directory, for tools that archive results.

CRATE = "ro-crate-metadata.json"
_SOFTWARE = {"@id": "#search-to-signal"}
_LICENCE = {"@id": "https://spdx.org/licenses/MIT"}


def describe_crate(directory: Path, title: str) -> bytes:
    """Return the metadata as canonical JSON: every file except the checksum lists, and every run.

    ``datePublished`` is SOURCE_DATE_EPOCH where it is set, else the current date.
    """
    written_later = {directory / name for name in (CRATE, SUMS, DATA_SUMS, BLOCKS)}
    files, runs = list[dict[str, Any]](), list[dict[str, Any]]()
    for path in listed_files(directory):
        place = path.relative_to(directory)
        if path not in written_later and INTERRUPTED not in place.parts:
            facts = {"name": path.name, "contentSize": str(path.stat().st_size)}
            files.append({"@id": place.as_posix(), "@type": "File", **facts})
    for run in runs_below(directory):
        name, manifest = run.relative_to(directory).as_posix(), read_manifest(run)
        runs.append(
            {
                "@id": f"#run-{name}",
                "@type": "CreateAction",
                "name": f"run {name}, {manifest.status}, source {manifest.source.sha256}",
                "description": f"configuration {manifest.config_sha256}",
                "instrument": _SOFTWARE,
                "result": {"@id": f"{name}/manifest.json"},
            }
        )
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.fromtimestamp(int(epoch), timezone.utc) if epoch else datetime.now(timezone.utc)
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": title,
        "description": "Records, tables and figures of search-coupled online post-training; "
        "manifests say what ran on what, and SHA256SUMS covers every file.",
        "datePublished": now.date().isoformat(),
        "license": _LICENCE,
        "hasPart": [{"@id": file["@id"]} for file in files],
        "mentions": [{"@id": run["@id"]} for run in runs],
    }
    about = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    software = {**_SOFTWARE, "@type": "SoftwareApplication", "name": "search-to-signal", "license": _LICENCE}
    licence = {**_LICENCE, "@type": "CreativeWork", "name": "MIT License"}
    context = "https://w3id.org/ro/crate/1.1/context"
    crate = {"@context": context, "@graph": [about, root, licence, software, *runs, *files]}
    return msgspec.json.format(msgspec.json.encode(crate, order="sorted"), indent=2) + b"\n"


def seal(directory: Path, title: str) -> None:
    """Write RO-Crate metadata, block index and checksum lists, in this order.

    ``title`` names the data set in the metadata. Raises RunDirectoryError for a damaged PNG.
    """
    (directory / CRATE).write_bytes(describe_crate(directory, title))
    write_blocks(directory)
    write_sums(directory)
