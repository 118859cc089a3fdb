"""The style of figures: matplotlib's defaults and our settings, independent of any matplotlibrc.

A matplotlibrc in the working directory is not trusted: it could start latex with its own preamble.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SETTINGS: Mapping[str, Any] = {
    "text.usetex": False,
    "svg.hashsalt": "search-to-signal",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "lines.markersize": 4,
    "lines.linewidth": 1.3,
    "figure.constrained_layout.h_pad": 0.05,
    "figure.constrained_layout.w_pad": 0.05,
}


@contextmanager
def _without_matplotlibrc() -> Iterator[None]:
    """Change to a temporary directory with an empty matplotlibrc, which matplotlib reads first."""
    before = os.open(".", os.O_PATH)
    try:
        with TemporaryDirectory(prefix="s2s-") as empty:
            (Path(empty) / "matplotlibrc").touch()
            os.chdir(empty)
            try:
                yield
            finally:
                os.fchdir(before)
    finally:
        os.close(before)


# matplotlib reads its settings on first import; the package of figures imports this module first.
with _without_matplotlibrc():
    import matplotlib as mpl


@contextmanager
def house_style() -> Iterator[None]:
    """Draw figures with ``SETTINGS``, even if another module has loaded a matplotlibrc."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield
