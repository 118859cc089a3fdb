"""The questions that records ask of an archive; spec/test_host.py holds its listing to a model."""

from collections.abc import Callable

import pytest

from search_to_signal.search.hosts.calm.state import bases, equal
from search_to_signal.search.member import Member, archive_gap, frontier

Make = Callable[..., Member]


def test_equality_is_strictly_within_a_ten_millionth() -> None:
    assert equal(1.0, 1.0 + 0.9e-7)
    assert not equal(0.0, 1e-7)


@pytest.mark.parametrize(("score", "gap"), [(-2.0, 0.0), (-2.4, 0.4), (5.0, 6.0), (-1.00000005, 5e-8)])
def test_the_gap_is_the_distance_to_the_nearest_score(member: Make, score: float, gap: float) -> None:
    archive = (member(-1.0), member(-2.0), member(-9.0))
    assert archive_gap(archive, score) == pytest.approx(gap, abs=1e-15)


def test_an_empty_archive_has_no_frontier_and_no_gap(member: Make) -> None:
    assert frontier(()) is None
    assert archive_gap((), 1.0) is None
    assert frontier((member(-2.0), member(-1.0))) == -1.0


def test_bases_are_all_members_with_a_shown_code(member: Make) -> None:
    parent, twin, other = member(-1, code="x = 1\n"), member(-2, code=" x = 1"), member(-3, code="x = 2")
    assert bases((parent, twin, other), (parent,)) == (parent, twin)
    assert bases((parent, twin, other), ()) == ()
