"""A container of files: names and lengths as JSON, then the bytes, compressed, without times and owners."""

import lzma
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path

import msgspec

from search_to_signal.errors import UNREADABLE, RunDirectoryError, reason
from search_to_signal.records.files import is_place, read_regular, write_atomically

RECORDS = "records.xz"
"""The container of a packed run."""

# Records are text: more literal context bits, no position bits. Equal input gives equal bytes.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
# Records shrink to a seventieth at most. A forged container must not fill the memory.
_LARGEST, _SHRINKS, _SMALL = 1 << 28, 256, 1 << 20
_MEMORY = 1 << 28


def write_container(path: Path, parts: Mapping[str, bytes]) -> None:
    """Write named parts in order, atomically; raises RunDirectoryError where reading would refuse it."""
    head = msgspec.json.encode([[name, len(data)] for name, data in parts.items()])
    whole = b"".join([head, b"\n", *parts.values()])
    data = lzma.compress(whole, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=_FILTERS)
    if len(whole) > _largest_content(len(data)):
        name, size = max(((name, len(part)) for name, part in parts.items()), key=itemgetter(1))
        raise RunDirectoryError(
            f"{path} would hold {len(whole)} bytes in {len(data)}, which is refused when it is read: "
            f"{name} has {size}; take it out of the results, or shorten it"
        )
    write_atomically(path, data)


def read_container(path: Path) -> dict[str, bytes]:
    """Return the parts by name.

    Raises RunDirectoryError for a file that is missing, truncated or changed, that expands to far more than
    records do, or that contains a name twice or bytes after its end.
    """
    try:
        whole = _expanded(read_regular(path))
        head, _, body = whole.partition(b"\n")
        lengths = msgspec.json.decode(head, type=list[tuple[str, int]])
        if sum(length for _, length in lengths) != len(body) or any(length < 0 for _, length in lengths):
            raise ValueError("its parts have other lengths")
        if len(dict(lengths)) != len(lengths):
            raise ValueError("it holds a name twice")
    except (OSError, ValueError, lzma.LZMAError, *UNREADABLE) as error:
        raise RunDirectoryError(f"cannot read {path} ({reason(error)}): restore the file") from error
    parts, start = {}, 0
    for name, length in lengths:
        parts[name], start = body[start : start + length], start + length
    return parts


def _largest_content(size: int) -> int:
    """The number of bytes that a container of this size may expand to."""
    return min(_LARGEST, _SMALL + _SHRINKS * size)


def _expanded(data: bytes) -> bytes:
    largest = _largest_content(len(data))
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MEMORY)
    whole = decoder.decompress(data, max_length=largest + 1)
    if len(whole) > largest:
        raise ValueError(f"its {len(data)} bytes hold more than {largest}")
    if not decoder.eof:
        raise ValueError("it is cut")
    if decoder.unused_data:
        raise ValueError("something stands behind its end")
    return whole


def write_files(files: Mapping[str, bytes], out: Path, source: Path) -> None:
    """Write named files below ``out``.

    Raises RunDirectoryError for a name that leads outside of ``out``, and for a file that exists already,
    since files that were checked must not change.
    """
    for name, data in files.items():
        if not is_place(name):
            raise RunDirectoryError(f"{source} holds {name!r}, which leads elsewhere: restore the file")
        place = out / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as stream:
                stream.write(data)
        except (FileExistsError, NotADirectoryError) as error:
            raise RunDirectoryError(
                f"{source} holds {name!r}, which another file of the evidence is: restore the file"
            ) from error
