"""Where a checkout is opened: links that go, or a copy in which what the host writes stays."""

import filecmp
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LARGE = 1 << 26
_LEFT_OUT = shutil.ignore_patterns(".git", "__pycache__")


@contextmanager
def linked(path: Path) -> Iterator[Path]:
    """A temporary directory with links to what a checkout holds; it goes with everything written into it."""
    with tempfile.TemporaryDirectory(prefix="s2s-calm-") as directory:
        for entry in path.iterdir():
            (Path(directory) / entry.name).symlink_to(entry)
        yield Path(directory)


@contextmanager
def copied(path: Path, place: Path) -> Iterator[Path]:
    """A copy of a checkout without its history; afterwards what differs from the checkout stays there.

    A copy, because a host may find its directories through links, and would then write into the checkout.
    """
    shutil.copytree(path, place, ignore=_LEFT_OUT, copy_function=_copy, ignore_dangling_symlinks=True)
    for entry in (place, *place.rglob("*")):
        if entry.is_dir():
            entry.chmod(0o755)
    try:
        yield place
    finally:
        _remove_unchanged(path, place)


def _copy(original: str, copy: str) -> None:
    """Contents alone, as a checkout may be read-only; a link to what is large, such as weights."""
    if Path(original).stat().st_size > _LARGE:
        Path(copy).symlink_to(original)
    else:
        shutil.copyfile(original, copy)


def _remove_unchanged(path: Path, place: Path) -> None:
    inner_first = sorted(place.rglob("*"), reverse=True)
    for entry in (*inner_first, place):
        original = path / entry.relative_to(place)
        if entry.is_dir() and not entry.is_symlink():
            if not any(entry.iterdir()):
                entry.rmdir()
        elif entry.suffix == ".pyc" or (original.is_file() and _is_copy(original, entry)):
            entry.unlink()


def _is_copy(original: Path, entry: Path) -> bool:
    return entry.samefile(original) or filecmp.cmp(original, entry, shallow=False)
