"""What all tests share: a process that commands are forked from, and reports without drawings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.forked import Commands


@pytest.fixture(scope="session")
def commands() -> Iterator["Commands"]:
    """What starts commands in processes of their own that have the libraries loaded already."""
    from tests.forked import Commands

    found = Commands()
    yield found
    found.close()


@pytest.fixture(scope="module", autouse=True)
def drawings() -> Iterator[None]:
    """A pixel in place of each figure; a module that looks at them has a fixture of its own by this name."""
    from tests.drawing import not_drawn  # which takes a second that not every process has need of

    with not_drawn():
        yield
