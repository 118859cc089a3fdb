"""What all tests share: reports have no drawings but where a test looks at them."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def drawings() -> Iterator[None]:
    """A pixel in place of each figure; a module that looks at them has a fixture of its own by this name."""
    from tests.drawing import not_drawn  # which takes a second that not every process has need of

    with not_drawn():
        yield
