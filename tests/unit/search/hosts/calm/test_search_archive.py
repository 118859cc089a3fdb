"""Listing, admission and the questions that records ask of an archive."""

from collections.abc import Callable

import pytest

from search_to_signal.problems.base import Heuristic
from search_to_signal.sandbox.programs import program_sha256
from search_to_signal.search.hosts.calm.state import bases, equal, initial_state, state_of
from search_to_signal.search.member import Member, archive_gap, frontier, seed_member

Make = Callable[..., Member]


def test_the_initial_state_is_the_seed_alone() -> None:
    """One member without an operator, which is also the one seed, and nothing remembered."""
    state = initial_state(seed_member(Heuristic("greedy", "x = 1"), -7.5))
    (seed,) = state.archive
    assert (seed.idea, seed.code, seed.score, seed.operator) == ("greedy", "x = 1", -7.5, None)
    assert seed.id == program_sha256("x = 1")
    assert state.seeds == (seed,)
    assert (state.used_prompts, state.injected, state.stagnation) == (frozenset(), (), 0)


def test_listing_is_best_first_with_ties_reversed(member: Make) -> None:
    """Exact ties swap with every listing, as the host's sort does."""
    first, second, best = member(-2, "first"), member(-2, "second"), member(-1, "best")
    once = state_of((first, second, best), ()).listed()
    assert [m.idea for m in once.archive] == ["best", "second", "first"]
    assert [m.idea for m in once.listed().archive] == ["best", "first", "second"]


def test_ideas_follow_the_listing(member: Make) -> None:
    """Distances are in listing order after extensions and listings in turn."""
    known = member(0, "a b")
    state = state_of((member(-1, "a b c d"),), ()).extended([member(-3, "c"), member(-2, "b")]).listed()
    state = state.extended([member(-2.5, "")]).listed()
    assert [m.idea for m in state.archive] == ["a b c d", "b", "", "c"]
    assert state.distances(known).tolist() == [0.5, 0.0, 0.0, 1.0]


def test_equality_is_strictly_within_a_ten_millionth() -> None:
    """The host's tolerance, not including its edge."""
    assert equal(1.0, 1.0 + 0.9e-7)
    assert not equal(0.0, 1e-7)


@pytest.mark.parametrize(("score", "gap"), [(-2.0, 0.0), (-2.4, 0.4), (5.0, 6.0), (-1.00000005, 5e-8)])
def test_the_gap_is_the_distance_to_the_nearest_score(member: Make, score: float, gap: float) -> None:
    """Whichever side that is on."""
    archive = (member(-1.0), member(-2.0), member(-9.0))
    assert archive_gap(archive, score) == pytest.approx(gap, abs=1e-15)


def test_an_empty_archive_has_no_frontier_and_no_gap(member: Make) -> None:
    """Absent, not zero."""
    assert frontier(()) is None
    assert archive_gap((), 1.0) is None
    assert frontier((member(-2.0), member(-1.0))) == -1.0


def test_bases_are_all_members_with_a_shown_code(member: Make) -> None:
    """Two members with one code but two scores are both bases."""
    parent, twin, other = member(-1, code="x = 1\n"), member(-2, code=" x = 1"), member(-3, code="x = 2")
    assert bases((parent, twin, other), (parent,)) == (parent, twin)
    assert bases((parent, twin, other), ()) == ()
