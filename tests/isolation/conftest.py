"""Judges that all isolation tests share, because starting a fork server takes a second."""

from collections.abc import Iterator

import pytest
from isolation_corpus import Judge, judge


@pytest.fixture(scope="session")
def paper() -> Iterator[Judge]:
    """The kernel's layers alone."""
    with judge("paper") as judging:
        yield judging


@pytest.fixture(scope="session")
def strict() -> Iterator[Judge]:
    """The kernel's layers behind the static gate."""
    with judge("strict") as judging:
        yield judging
