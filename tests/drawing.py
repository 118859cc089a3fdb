"""Figures that are drawn, and a pixel in their place: few tests look at drawings, which take seconds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.disk import unsynced

from search_to_signal.cli import main
from search_to_signal.report import figures
from search_to_signal.report.figures import cohort
from search_to_signal.report.figures.plot import Plot, draw_from_csv
from search_to_signal.study import page

# One grey pixel.
_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c636800000082008177cd72b60000000049454e44ae426082"
)
_REDRAW = figures.redraw
# For a command in a process of its own that draws the figures of ``NAMES``, and no others.
COMMAND = f"""
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
from tests.drawing import main_drawing
sys.exit(main_drawing(NAMES))
"""


def _write_csv(name: str, text: str, draw: object, size: object, out: Path) -> Path:
    """In place of ``draw_from_csv``."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.csv").write_text(text, encoding="utf-8")
    return _write_pixel(out / f"{name}.csv")


def _write(plot: Plot, path: Path, smoke: bool = False) -> Path:
    return _write_pixel(path)


def _write_pixel(path: Path) -> Path:
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
        for module in (cohort, page):
            patch.setattr(module, "draw_from_csv", draw_from_csv)
        patch.setattr(figures, "mapped", map)
        yield


@contextmanager
def not_drawn() -> Iterator[None]:
    """Within it figures have their data, and a grey pixel in place of what would be drawn from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "redraw", _write)
        for module in (cohort, page):
            patch.setattr(module, "draw_from_csv", _write_csv)
        patch.setattr(figures, "mapped", map)
        yield


def main_drawing(names: Sequence[str]) -> int:
    """The command s2s, which draws figures of these names alone and does not wait for the disk."""
    with drawn(*names) if names else not_drawn(), unsynced():
        return main()
