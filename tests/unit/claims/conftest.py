"""A copy of the published numbers that a test may damage."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.copies import copy_to_change

from search_to_signal.base.package_data import PUBLISHED

Edit = Callable[[str, str, str], Path]


@pytest.fixture
def edited(tmp_path: Path) -> Edit:
    """Replace the first occurrence of a text in one published file; returns the directory of the copy."""

    def edit(name: str, old: str, new: str) -> Path:
        directory = tmp_path / "published"
        if not directory.exists():
            copy_to_change(PUBLISHED, directory)
        text = (directory / name).read_text(encoding="utf-8")
        assert old in text
        (directory / name).write_text(text.replace(old, new, 1), encoding="utf-8")
        return directory

    return edit
