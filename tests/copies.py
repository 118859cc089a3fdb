"""Copies of parts of the project that a test may change: in the image everything of it is read-only."""

import shutil
from pathlib import Path


def copy_to_change(source: Path, to: Path, *, bytecode: bool = False) -> Path:
    """Copy a directory to a place that is not there yet, so that its owner may write all of it.

    With ``bytecode`` Python need not compile what the copy does not change.
    """
    shutil.copytree(source, to, ignore=None if bytecode else shutil.ignore_patterns("__pycache__"))
    for path in (to, *to.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    return to
