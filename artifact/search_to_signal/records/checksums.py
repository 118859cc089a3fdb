"""SHA256SUMS in plain GNU form, which ``sha256sum -c --strict`` accepts and checks.

A second list, SHA256SUMS.data, holds the hashes of PNG files' image data.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.files import (
    LARGEST,
    TEMPORARY,
    entries_below,
    files_named,
    is_place,
    open_regular,
    read_regular,
    write_atomically,
)

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
    """Yield unpacked bytes in pieces of bounded size."""
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
