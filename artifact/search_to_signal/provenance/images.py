"""PNG files are compared by what they show: their bytes depend on the machine's compression library."""

import hashlib
import struct
import zlib
from pathlib import Path

from PIL import Image, UnidentifiedImageError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _sound(data: bytes) -> bool:
    """Whether every chunk carries its own checksum and the file ends with the last one."""
    place = len(_SIGNATURE)
    if data[:place] != _SIGNATURE:
        return False
    while place + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        body = data[place + 4 : place + 8 + length]
        if data[place + 8 + length : place + 12 + length] != struct.pack(">I", zlib.crc32(body)):
            return False
        place += 12 + length
        if body[:4] == b"IEND":
            return place == len(data)
    return False


def pixels_sha256(path: Path) -> str | None:
    """SHA-256 over mode, size and pixels of a PNG; None for a file that is damaged anywhere."""
    if not _sound(path.read_bytes()):
        return None
    try:
        with Image.open(path) as image:
            image.load()
            header = f"{image.mode} {image.size}\n".encode()
            return hashlib.sha256(header + image.tobytes()).hexdigest()
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError):
        return None
