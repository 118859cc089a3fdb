"""The entropic host: which program is due, what a group leaves in the buffer, and what leaves it."""

from typing import Any

import numpy as np
import pytest

from search_to_signal.base.errors import ConfigError
from search_to_signal.problems.tsp import Tsp
from search_to_signal.records.schema import ArchiveEvent, Outcome
from search_to_signal.search.host import Host, HostSetup, exposures_of, update_search
from search_to_signal.search.hosts import open_host
from search_to_signal.search.hosts.calm.prompts import REPLACEMENT
from search_to_signal.search.hosts.entropic.host import (
    BufferSettings,
    ReuseBuffer,
    chosen,
    extended,
    priors,
    values,
    visited,
)
from search_to_signal.search.member import Evaluated, Member

SEED = Member("seed", "def a():\n    return 0", -7.0, None, 0, 0, "seed")


def member(name: str, score: float) -> Member:
    """A program of its own text."""
    return Member(name, f"def a():\n    return '{name}'", score, REPLACEMENT, 1, 0, name)


def answer(name: str, score: float | None) -> Evaluated:
    outcome = Outcome.RUNTIME_FAILURE if score is None else Outcome.VALID
    return Evaluated(outcome, name, f"def a():\n    return '{name}'", score, name)


def host(**settings: Any) -> Host:
    """The host as a profile opens it."""
    return open_host("entropic", HostSetup(Tsp(), settings))


def test_values_and_ranks_by_hand() -> None:
    """Q + c * scale * P * sqrt(1 + T) / (1 + n), worked out for three programs."""
    buffer = ReuseBuffer((SEED, member("b", -5.0), member("c", -6.0)), {}, {"b": 1}, {"b": -4.0}, total=3)
    scale, root = 1.0, 2.0
    expected = [-7 + 1 / 6 * scale * root, -4 + 3 / 6 * scale * root / 2, -6 + 2 / 6 * scale * root]
    np.testing.assert_allclose(values(buffer, BufferSettings()), expected)
    assert chosen(buffer, BufferSettings()).id == "b"
    assert priors(np.array([-5.0, -5.0, -4.0])).tolist() == pytest.approx([2 / 6, 1 / 6, 3 / 6])

    def tried(weight: float) -> list[str]:
        buffer, seen = ReuseBuffer((SEED, member("b", -5.0), member("c", -5.2))), []
        for _ in range(6):
            parent = chosen(buffer, BufferSettings(puct_c=weight))
            seen.append(parent.id)
            buffer = visited(buffer, parent, None)
        return seen

    assert set(tried(0.0)) == {"b"}
    assert {"b", "c"} <= set(tried(10.0))


def test_the_best_few_new_children_are_kept() -> None:
    made = host()
    request = made.propose(made.start(SEED), np.random.default_rng(0))
    results = [answer("b", -6.0), answer("c", -4.0), answer("c", -4.0), answer("d", None), answer("e", -5.0)]
    transition = update_search(made, request, results, 0)
    admitted, again, invalid = ArchiveEvent.ADMITTED, ArchiveEvent.DUPLICATE_SCORE, ArchiveEvent.INVALID
    assert transition.events == (again, admitted, again, invalid, admitted)
    assert [kept.id for kept in transition.admitted] == ["c", "e"]
    request = made.propose(transition.state, np.random.default_rng(1))
    assert update_search(made, request, [answer("c", -4.0)], 1).events == (again,)


def test_a_full_buffer_keeps_the_seed_and_the_best() -> None:
    """The worst leave first, so that the frontier never falls."""
    made = host(max_buffer_size=3, topk_children=0)
    state = made.start(SEED)
    for step, scores in enumerate([(-6.0, -6.5), (-5.0, -6.2), (-8.0, -7.5)]):
        request = made.propose(state, np.random.default_rng(step))
        results = [answer(f"{step}.{i}", score) for i, score in enumerate(scores)]
        state = update_search(made, request, results, step).state
    assert [member.score for member in state.members] == [-7.0, -6.0, -5.0]


def test_exposure_and_visits() -> None:
    made = host(puct_c=0.01)
    request = made.propose(made.start(SEED), np.random.default_rng(0))
    results = [answer("b", -1.0), answer("c", -9.0), answer("d", None)]
    assert exposures_of(made, request, results) == (1.0, 0.0, None)
    first, second = member("b", -5.0), member("c", -4.0)
    buffer = extended(ReuseBuffer((SEED,)), SEED, (first,), 10)
    buffer = extended(buffer, first, (second,), 10)
    buffer = visited(visited(buffer, second, -3.0), second, -6.0)
    assert dict(buffer.visits) == {"seed": 2, "b": 2, "c": 2}
    assert dict(buffer.reached) == {"c": -3.0}


@pytest.mark.parametrize("settings", [{"c": 1.0}, {"puct_c": -1.0}, {"max_buffer_size": "all"}])
def test_settings_of_another_host_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"host_settings.*{next(iter(settings))}"):
        host(**settings)
