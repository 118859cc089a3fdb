"""Many files in one: names and lengths as JSON, then their bytes, compressed; no times, no owners."""

import lzma
from collections.abc import Mapping
from pathlib import Path

import msgspec

from search_to_signal.errors import UNREADABLE, RunDirectoryError, reason
from search_to_signal.records.files import is_place, write_atomically

# Text of few kinds: more context of the letters before, none of positions. Equal input, equal bytes.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
# Records shrink to a seventieth at most; whoever forged a container shall not fill the memory.
_LARGEST, _SHRINKS, _SMALL = 1 << 28, 256, 1 << 20
_MEMORY = 1 << 28


def write_container(path: Path, parts: Mapping[str, bytes]) -> None:
    """Write named parts, in their order; a container that stops being written has another name.

    Raises RunDirectoryError for what ``read_container`` would refuse.
    """
    head = msgspec.json.encode([[name, len(data)] for name, data in parts.items()])
    whole = b"".join([head, b"\n", *parts.values()])
    data = lzma.compress(whole, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=_FILTERS)
    if len(whole) > _most(len(data)):
        name, size = max(((name, len(part)) for name, part in parts.items()), key=lambda one: one[1])
        raise RunDirectoryError(
            f"{path} would hold {len(whole)} bytes in {len(data)}, which is refused when it is read: "
            f"{name} has {size}; take it out of the results, or shorten it"
        )
    write_atomically(path, data)


def read_container(path: Path) -> dict[str, bytes]:
    """The parts by name; raises RunDirectoryError for a file that is missing, cut or changed.

    Also for one that holds far more than records do in so few bytes, a name twice, or bytes after its end.
    """
    try:
        whole = _expanded(path.read_bytes())
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


def _most(size: int) -> int:
    """Bytes that a container of that size may hold."""
    return min(_LARGEST, _SMALL + _SHRINKS * size)


def _expanded(data: bytes) -> bytes:
    most = _most(len(data))
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MEMORY)
    whole = decoder.decompress(data, max_length=most + 1)
    if len(whole) > most:
        raise ValueError(f"its {len(data)} bytes hold more than {most}")
    if not decoder.eof:
        raise ValueError("it is cut")
    if decoder.unused_data:
        raise ValueError("something stands behind its end")
    return whole


def write_files(files: Mapping[str, bytes], out: Path, source: Path) -> None:
    """Write named files below ``out``, each a new one.

    Raises RunDirectoryError for a name that leads elsewhere, and for one that is there already: whatever was
    checked stays as it was.
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
