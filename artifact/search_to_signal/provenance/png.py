"""Hashes of PNG image data, since compression libraries pack equal images into different bytes."""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from search_to_signal.records.files import read_regular

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
        raise ValueError("bytes behind the end")


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
