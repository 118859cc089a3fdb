"""A figure as a page holds it: its bytes inside the page, and as wide as its letters need."""

import base64
from pathlib import Path
from typing import NamedTuple

from search_to_signal.analysis.figures.plot import PNG_DPI
from search_to_signal.records.files import read_regular

_PIXELS_PER_INCH = 140


class EmbeddedPicture(NamedTuple):
    """A picture's bytes as a data URL, and its width on the page in pixels."""

    data: str
    width: int


def embed_picture(path: Path) -> EmbeddedPicture:
    """Embed a PNG that a plot was drawn to; its letters have one size, however many panels it has."""
    png = read_regular(path)
    pixels = int.from_bytes(png[16:20], "big")
    data = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
    return EmbeddedPicture(data, round(pixels / PNG_DPI * _PIXELS_PER_INCH))
