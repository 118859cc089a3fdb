"""Figures that are drawn, and a pixel in their place: few tests look at drawings, which take seconds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from search_to_signal.analysis import figures
from search_to_signal.analysis.figures.plot import Plot

# One grey pixel.
_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c636800000082008177cd72b60000000049454e44ae426082"
)
_REDRAW = figures.redraw


def _write(plot: Plot, path: Path, smoke: bool = False) -> Path:
    path.with_suffix(".pdf").write_bytes(b"%PDF-1.4\n")
    path.with_suffix(".png").write_bytes(_PNG)
    return path.with_suffix(".png")


@contextmanager
def drawn(*names: str) -> Iterator[None]:
    """Within it figures are drawn, as by the commands, in this process: those of these names, or all."""

    def chosen(plot: Plot, path: Path, smoke: bool = False) -> Path:
        return (_REDRAW if not names or plot.name in names else _write)(plot, path, smoke)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "redraw", chosen)
        patch.setattr(figures, "mapped", map)
        yield


@contextmanager
def not_drawn() -> Iterator[None]:
    """Within it figures have their data, and a grey pixel in place of what would be drawn from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "redraw", _write)
        patch.setattr(figures, "mapped", map)
        yield
