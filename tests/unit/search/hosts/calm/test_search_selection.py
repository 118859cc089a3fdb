"""Draws of parents at their edges; spec/test_selection.py has the distributions."""

from collections.abc import Callable

import numpy as np
import pytest

from search_to_signal.search.hosts.calm.selection import (
    draw_crossover,
    draw_index,
    draw_index_or_none,
    pair_exists,
)
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import state_of
from search_to_signal.search.member import Member

Make = Callable[..., Member]


def test_crossover_without_a_usable_pair_gives_none(member: Make) -> None:
    """A head of one, and ideas without a new word: starting again would never end."""
    state = state_of((member(2, "a"), member(1, "a")), ())
    settings = SearchSettings(population_size=1)
    assert not pair_exists(state, settings)
    assert draw_crossover(state, settings, np.random.default_rng(1)) is None
    diverse = state_of((member(2, "a"), member(1, "b")), ())
    assert draw_crossover(diverse, settings, np.random.default_rng(1)) == diverse.archive


def test_members_with_one_idea_are_crossed_unless_their_scores_are_equal(member: Make) -> None:
    settings = SearchSettings(population_size=2)
    unequal = state_of((member(2, "a"), member(2 - 2e-7, "a")), ())
    assert pair_exists(unequal, settings)
    pair = draw_crossover(unequal, settings, np.random.default_rng(1))
    assert pair is not None
    assert set(pair) == set(unequal.archive)
    assert not pair_exists(state_of((member(2, "a"), member(2 - 9e-8, "a")), ()), settings)


def test_draws_skip_zeros_and_report_what_is_missing() -> None:
    """Entries of zero are never drawn, and missing chance comes out as None."""
    rng = np.random.default_rng(2)
    assert {draw_index(np.array([0.0, 3.0, 0.0, 1.0, 0.0]), rng) for _ in range(200)} == {1, 3}
    assert {draw_index_or_none(np.array([0.0, 0.4, 0.0]), rng) for _ in range(200)} == {1, None}


class Fixed(np.random.Generator):
    """A generator whose every draw is the same number."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.value = value

    def random(self, *_: object, **__: object) -> float:  # type: ignore[override]
        return self.value


@pytest.mark.parametrize(("value", "index"), [(0.0, 1), (1 - 2**-53, 3)])
def test_draws_at_the_ends_skip_zeros_too(value: float, index: int) -> None:
    for chances in ([0.0, 0.7, 0.0, 0.3, 0.0], [0.0, 0.1, 0.0, 0.2, 0.0], [0.0, 3.0, 0.0, 5.0, 0.0]):
        assert draw_index(np.array(chances), Fixed(value)) == index
