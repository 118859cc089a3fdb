"""EvoTune's host: what its database keeps, gives away and forgets, and what its prompts are drawn from."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from search_to_signal.base.errors import ConfigError
from search_to_signal.problems.tsp import Tsp
from search_to_signal.records.schema import ArchiveEvent, Outcome
from search_to_signal.search.host import Host, HostSetup, Request, update_search
from search_to_signal.search.hosts import open_host
from search_to_signal.search.hosts.calm.prompts import CROSSOVER, REPLACEMENT
from search_to_signal.search.hosts.evotune.host import (
    EvoTuneSettings,
    IslandDatabase,
    best,
    chance_of,
    clusters,
    in_percentile,
    maintain,
    migrate,
    percentile,
    reset,
    select_programs,
)
from search_to_signal.search.member import Evaluated, Member

SEED = Member("seed", "def a():\n    return 0", -7.0, None, 0, 0, "seed")


def member(name: str, score: float, length: int = 1) -> Member:
    """A program of its own text."""
    return Member(name, f"def a():\n    return '{name * length}'", score, CROSSOVER, 1, 0, name)


def answer(name: str, score: float | None) -> Evaluated:
    outcome = Outcome.RUNTIME_FAILURE if score is None else Outcome.VALID
    return Evaluated(outcome, name, f"def a():\n    return '{name}'", score, name)


def host(**settings: Any) -> Host:
    """The host as a profile opens it."""
    return open_host("evotune", HostSetup(Tsp(), settings))


def played(made: Host, groups: Sequence[Sequence[Evaluated]], seed: int = 0) -> tuple[Any, list[Request]]:
    """The state after groups of answers, and the requests they answered."""
    state, requests = made.start(SEED), []
    for step, results in enumerate(groups):
        requests.append(made.propose(state, np.random.default_rng([seed, step])))
        state = update_search(made, requests[-1], results, step).state
    return state, requests


def test_programs_wait_for_the_end_of_their_batch() -> None:
    made = host(num_islands=1, num_cont_rounds=2)
    _, requests = played(made, [[answer("b", -5.0)], [answer("c", -6.0)], []])
    assert [len(request.bases) for request in requests] == [1, 1, 2]
    assert [max(m.score for m in request.archive) for request in requests] == [-7.0, -5.0, -5.0]
    assert [request.operator for request in requests] == [REPLACEMENT, REPLACEMENT, CROSSOVER]


def test_an_island_takes_a_program_once() -> None:
    made = host(num_islands=1, num_cont_rounds=1)
    state, _ = played(made, [[answer("b", -5.0)]])
    request = made.propose(state, np.random.default_rng(1))
    results = [answer("c", -4.0), answer("c", -4.0), answer("b", -5.0), answer("d", -5.0), answer("e", None)]
    transition = update_search(made, request, results, 1)
    admitted, again, invalid = ArchiveEvent.ADMITTED, ArchiveEvent.DUPLICATE_SCORE, ArchiveEvent.INVALID
    assert transition.events == (admitted, again, again, admitted, invalid)
    assert [new.id for new in transition.admitted] == ["c", "d"]
    assert len(transition.archive) == 4


def test_migration_and_reset() -> None:
    islands = ((SEED, member("b", -3.0)), (SEED, member("c", -2.0)), (SEED,))
    after = migrate(IslandDatabase(islands))
    assert [[m.id for m in island] for island in after.islands] == [
        ["seed", "b"],
        ["seed", "c", "b"],
        ["seed", "c"],
    ]
    islands = tuple((SEED, member(f"m{i}", -float(i))) for i in range(5))
    after = reset(IslandDatabase(islands), np.random.default_rng(0))
    assert [len(island) for island in after.islands] == [2, 2, 2, 1, 1]
    founders = {best(island).id for island in islands[:3]}
    assert all(island[0].id in founders for island in after.islands[3:])
    assert after.islands[:3] == islands[:3]


def test_upkeep_comes_when_it_is_due() -> None:
    settings = EvoTuneSettings(num_islands=2, num_cont_rounds=2, migration_period=3, reset_period=4)
    waiting = IslandDatabase(((SEED,), (SEED,)), ((1, member("b", -3.0)),))
    rng = np.random.default_rng(0)
    found = {}
    for groups in range(5):
        database, was_reset = maintain(replace(waiting, groups=groups), settings, rng)
        found[groups] = (len(database.pending), [len(island) for island in database.islands], was_reset)
    assert found == {
        0: (1, [1, 1], False),
        1: (1, [1, 1], False),
        2: (0, [1, 2], False),
        3: (1, [1, 1], False),
        4: (0, [1, 2], True),
    }


def test_clusters_and_the_percentile_that_is_drawn_from() -> None:
    island = (member("a", -4.000001), member("b", -4.000002), member("c", -4.1))
    assert {key: len(programs) for key, programs in clusters(island, EvoTuneSettings()).items()} == {
        -400.0: 2,
        -410.0: 1,
    }
    # Of ten clusters the best three are left at 0.3, and all where no more than a prompt needs would be.
    scores = np.arange(10.0)
    assert in_percentile(scores, 0.3, 2).tolist() == [7.0, 8.0, 9.0]
    assert in_percentile(scores, 0.3, 3).tolist() == scores.tolist()
    settings = EvoTuneSettings(initial_percentile=0.5, final_percentile=0.1, num_rounds=10, num_cont_rounds=5)
    shares = [percentile(IslandDatabase(((SEED,),), groups=groups), settings) for groups in (0, 4, 5, 10, 50)]
    assert shares == pytest.approx([0.5, 0.5, 0.3, 0.1, 0.1])


def test_better_and_shorter_programs_are_shown_more_often() -> None:
    island = (member("a", -4.0), member("b", -4.1), member("c", -4.0, length=40))
    settings = EvoTuneSettings(functions_per_prompt=1, initial_percentile=1.0, temp=10.0)
    rng = np.random.default_rng(0)
    database = IslandDatabase((island,))
    drawn = [select_programs(database, 0, settings, rng)[0].id for _ in range(4000)]
    share = {name: drawn.count(name) / len(drawn) for name in "abc"}
    high = 1 / (1 + np.exp(-1.0))
    assert share["b"] == pytest.approx(1 - high, abs=0.03)
    assert share["a"] > 1.5 * share["c"] > 0


def test_exposure_is_the_frequency_of_being_shown() -> None:
    settings = EvoTuneSettings(num_islands=2, initial_percentile=1.0)
    island = (member("a", -4.0), member("b", -4.1), member("c", -4.05))
    candidate = member("d", -4.02)
    chance = chance_of(IslandDatabase((island, (SEED,))), 0, candidate, settings)
    rng = np.random.default_rng(0)
    after = IslandDatabase(((*island, candidate), (SEED,)))
    draws = (select_programs(after, int(rng.integers(2)), settings, rng) for _ in range(4000))
    seen = np.mean([any(one is candidate for one in programs) for programs in draws])
    assert chance == pytest.approx(seen, abs=0.03)


def test_equal_streams_draw_equal_questions() -> None:
    """A search that is played again asks the same, and another seed asks otherwise."""
    groups = [
        [answer(f"p{4 * step + i}", -5.0 + 0.1 * i - 0.01 * step) for i in range(4)] for step in range(12)
    ]
    made = host(num_islands=3, num_cont_rounds=2, migration_period=3, reset_period=4)
    first, again, other = (played(made, groups, seed)[1] for seed in (0, 0, 1))
    assert [q.prompt for q in first] == [q.prompt for q in again]
    assert [q.prompt for q in first] != [q.prompt for q in other]
    best_scores = [max(m.score for m in request.archive) for request in first]
    assert best_scores == sorted(best_scores)
    assert any(request.collapsed for request in first)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"islands": 3}, "islands"),
        ({"num_islands": "six"}, "num_islands"),
        ({"num_islands": 0}, r"num_islands is 0"),
        ({"temp": 0.0}, r"temp is 0"),
    ],
)
def test_settings_of_another_host_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=rf"host_settings.*{told}"):
        host(**settings)


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"evotun'.*evotune"):
        open_host("evotun", HostSetup(Tsp()))
