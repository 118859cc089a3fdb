"""Members and states for the tests of the search."""

from collections.abc import Callable

import pytest

from search_to_signal.search.hosts.calm.prompts import CROSSOVER
from search_to_signal.search.member import Member

Make = Callable[..., Member]


@pytest.fixture
def member() -> Make:
    """Make a member from a score and an idea, with a code of its own."""

    def make(score: float, idea: str = "", code: str | None = None) -> Member:
        text = f"x = {score!r}" if code is None else code
        return Member(idea, text, score, CROSSOVER, step=1, index=0, id=text)

    return make
