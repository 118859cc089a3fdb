"""Many files in one: names and lengths as JSON, then their bytes, compressed; no times, no owners."""

import lzma
from collections.abc import Mapping
from pathlib import Path

import msgspec

from search_to_signal.errors import RunDirectoryError, reason

# Text of few kinds: more context of the letters before, none of positions. Equal input, equal bytes.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
# The largest container is far smaller; whoever forged one shall not fill the memory.
_LARGEST = 1 << 31


def write_container(path: Path, parts: Mapping[str, bytes]) -> None:
    """Write named parts, in their order."""
    head = msgspec.json.encode([[name, len(data)] for name, data in parts.items()])
    whole = b"".join([head, b"\n", *parts.values()])
    path.write_bytes(lzma.compress(whole, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=_FILTERS))


def read_container(path: Path) -> dict[str, bytes]:
    """The parts by name; raises RunDirectoryError for a file that is missing, cut or changed."""
    try:
        decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
        whole = decoder.decompress(path.read_bytes(), max_length=_LARGEST)
        if not decoder.eof:
            raise ValueError("it is cut")
        head, _, body = whole.partition(b"\n")
        lengths = msgspec.json.decode(head, type=list[tuple[str, int]])
        if sum(length for _, length in lengths) != len(body) or any(length < 0 for _, length in lengths):
            raise ValueError("its parts have other lengths")
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise RunDirectoryError(f"cannot read {path} ({reason(error)}): restore the file") from error
    parts, start = {}, 0
    for name, length in lengths:
        parts[name], start = body[start : start + length], start + length
    return parts


def write_files(files: Mapping[str, bytes], out: Path, source: Path) -> None:
    """Write named files below ``out``; raises RunDirectoryError for a name that leads elsewhere."""
    for name, data in files.items():
        place = out / name
        if not place.resolve().is_relative_to(out.resolve()):
            raise RunDirectoryError(f"{source} holds {name!r}, which leads elsewhere: restore the file")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
