"""How figures look: matplotlib's own defaults and our settings, whatever a matplotlibrc says.

It is the file of whoever prepared the working directory, and may start latex with a preamble of theirs.
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
def _among_no_settings() -> Iterator[None]:
    """Within it the working directory is one of ours, with an empty matplotlibrc, which is read first."""
    before = os.open(".", os.O_PATH)
    try:
        with TemporaryDirectory(prefix="s2s-") as ours:
            (Path(ours) / "matplotlibrc").touch()
            os.chdir(ours)
            try:
                yield
            finally:
                os.fchdir(before)
    finally:
        os.close(before)


# It reads settings where it is first imported; the package of figures begins with this module.
with _among_no_settings():
    import matplotlib as mpl


@contextmanager
def house_style() -> Iterator[None]:
    """Within it figures are drawn with ``SETTINGS``, also where another module has read a matplotlibrc."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield
