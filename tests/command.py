"""What tests ask for in their signatures: the command ``s2s``, runs made by hand, patches."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest


class Said(NamedTuple):
    """Exit code, and what was printed since the call before."""

    code: int
    out: str
    err: str


# Words of any type, which are given as texts, and ``code``, which is 0 unless it is given.
Command = Callable[..., Said]
# ``write_run`` of tests/unit/conftest.py.
Make = Callable[..., Path]
Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
