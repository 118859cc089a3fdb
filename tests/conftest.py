"""What all tests share: a process that commands are forked from, kept fork servers, and no drawings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.forked import Commands
    from tests.servers import Shelf

# Tests below these evaluate programs, and do not look at the processes that do it.
EVALUATING = (
    *("tests/integration/", "tests/unit/recipe/", "tests/unit/search/", "tests/unit/study/"),
    *("tests/unit/verify/", "tests/unit/layers/", "tests/unit/run/test_live_loop.py"),
    "tests/unit/run/test_idea_readings.py",
    *("tests/unit/problems/", "tests/unit/sandbox/test_exploits.py"),
    *(f"tests/unit/sandbox/test_evaluation_{what}.py" for what in ("clock", "dialogues", "replay", "state")),
)


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


@pytest.fixture(scope="session")
def _shelf() -> Iterator["Shelf"]:
    from tests.servers import Shelf

    found = Shelf()
    yield found
    found.close()


@pytest.fixture
def kept_servers(_shelf: "Shelf") -> Iterator[None]:
    """An evaluation pool takes up the fork servers of the one before."""
    from tests.servers import shelved

    with shelved(_shelf):
        yield


@pytest.fixture(scope="module", autouse=True)
def _kept_below_some_directories(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.node.nodeid.startswith(EVALUATING):
        yield
        return
    from tests.servers import shelved

    with shelved(request.getfixturevalue("_shelf")):
        yield
