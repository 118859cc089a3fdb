"""PNG files are compared by their image data, which every compression library packs in its own way."""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Size and mode, palette, transparency, and the packed rows. Other chunks are notes about a picture.
_HEADER = (b"IHDR", b"PLTE", b"tRNS")
_ROWS = b"IDAT"
_PIECE = 1 << 16


def _chunks(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Kind and body of every chunk; raises ValueError or struct.error for a file that is damaged or cut."""
    place = len(_SIGNATURE)
    if data[:place] != _SIGNATURE:
        raise ValueError("no PNG")
    kind = b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, place)
        checked = data[place + 4 : place + 8 + length]
        (crc,) = struct.unpack_from(">I", data, place + 8 + length)
        if zlib.crc32(checked) != crc:
            raise ValueError("damaged chunk")
        yield kind, checked[4:]
        place += 12 + length
    if place != len(data):
        raise ValueError("bytes behind the end")


def _unpacked(inflate: "zlib._Decompress", packed: bytes | memoryview) -> Iterator[bytes]:
    """Unpacked bytes in pieces, so that no picture takes more memory than another."""
    while True:
        piece = inflate.decompress(packed, _PIECE)
        yield piece
        if len(piece) < _PIECE:
            return
        packed = inflate.unconsumed_tail


def image_sha256(path: Path) -> str | None:
    """SHA-256 over header, palette and unpacked rows of a PNG; None for a file that is damaged anywhere."""
    digest, inflate = hashlib.sha256(), zlib.decompressobj()
    try:
        for kind, body in _chunks(memoryview(path.read_bytes())):
            if kind in _HEADER:
                digest.update(kind + body)
            elif kind == _ROWS:
                for rows in _unpacked(inflate, body):
                    digest.update(rows)
    except (ValueError, struct.error, zlib.error):
        return None
    return digest.hexdigest() if inflate.eof and not inflate.unused_data else None
