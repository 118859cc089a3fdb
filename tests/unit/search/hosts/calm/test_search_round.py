"""Collapse, components, transition and planning, by example."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from search_to_signal.base.errors import RecordError
from search_to_signal.records.schema import ArchiveEvent, Operator, Outcome
from search_to_signal.search.hosts.calm.host import Draw, plan_round
from search_to_signal.search.hosts.calm.prompts import (
    CREATION,
    CROSSOVER,
    INJECTION,
    REPLACEMENT,
    SIMPLIFICATION,
)
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, state_of
from search_to_signal.search.hosts.calm.transition import (
    collapse_due,
    collapse_probability,
    collapsed,
    component,
    remembered,
    stagnation_after,
    transition,
)
from search_to_signal.search.member import Evaluated, Member

Make = Callable[..., Member]
SETTINGS = SearchSettings(population_size=2)
INVALID = Evaluated(Outcome.RUNTIME_FAILURE)


def valid(score: float, response: str = "", code: str = "x = 1") -> Evaluated:
    return Evaluated(Outcome.VALID, "idea", code, score, response=response)


def after(state: SearchState, *results: Evaluated, operator: Operator = CROSSOVER) -> SearchState:
    return transition(state, results, operator=operator, step=3, settings=SETTINGS)[0]


@pytest.mark.parametrize(("stagnation", "chance"), [(0, 0.0), (10, 0.005), (24, 0.012), (25, 1.0), (90, 1.0)])
def test_collapse_grows_with_stagnation_up_to_the_threshold(stagnation: int, chance: float) -> None:
    """0.0005 per stagnant round, certain at 25."""
    assert collapse_probability(stagnation, SearchSettings()) == pytest.approx(chance)


def test_a_fresh_counter_never_collapses_and_a_full_one_always_does() -> None:
    """The two certain ends of the draw."""
    rng = np.random.default_rng(0)
    assert not any(collapse_due(0, SearchSettings(), rng) for _ in range(100))
    assert all(collapse_due(25, SearchSettings(), rng) for _ in range(100))


def test_collapse_keeps_the_first_best_and_unequal_seeds(member: Make) -> None:
    """Components survive; archive, used prompts and counter do not."""
    best, twin, other = member(-1, "best"), member(-1, "twin"), member(-2, "other")
    equal_seed, seed = member(-1 + 5e-8 - 1e-7, "equal seed"), member(-5, "seed")
    state = replace(
        state_of((other, best, twin, seed), (equal_seed, seed)),
        injected=("tabu list",),
        used_prompts=frozenset({"p"}),
        stagnation=9,
    )
    kept = collapsed(state)
    assert [m.idea for m in kept.archive] == ["best", "seed"]
    assert kept.distances(best).tolist() == [0.0, 1.0]
    assert (kept.seeds, kept.injected) == (state.seeds, ("tabu list",))
    assert (kept.used_prompts, kept.stagnation) == (frozenset(), 0)


def test_only_rounds_with_a_full_population_count_as_stagnant() -> None:
    """And a new best resets whatever was counted."""
    assert stagnation_after(0, 1, False, SETTINGS) == 0
    assert stagnation_after(4, 2, False, SETTINGS) == 5
    assert stagnation_after(4, 2, True, SETTINGS) == 0


@pytest.mark.parametrize(
    ("response", "found"),
    [
        ("The new component tabu list has been introduced.", "tabu list"),
        ("x. The new component look-ahead (Prim's) has been introduced.", "look-ahead (Prim's)"),
        ("{{idea}}\n```python\nx = 1  # The new component noise gate has been introduced\n```", "noise gate"),
        ("The new component [look-ahead] has been introduced.", None),
        ("The new component has been introduced.", None),
        ("The new component 2-opt has been introduced.", None),
        ("The new component a, b has been introduced. The new component c has been introduced", "c"),
        ("the new component tabu list has been introduced", None),
        ("The new component of sorts", None),
    ],
)
def test_components_are_read_from_the_fixed_sentence(response: str, found: str | None) -> None:
    """Anywhere in the response; letters, round brackets, apostrophes, hyphens and blanks only, stripped."""
    assert component(response) == found


def test_components_are_stored_once_in_order() -> None:
    """A second announcement of the same component changes nothing."""
    told = [f"The new component {name} has been introduced." for name in ("b", "a", "b", "c")] + ["none"]
    assert remembered(("a",), told) == ("a", "b", "c")


def test_only_valid_children_of_injection_are_remembered(member: Make) -> None:
    """Duplicates by score count as valid; other operators do not announce."""
    state = state_of((member(-1),), ())
    told = valid(-1.0, "The new component a has been introduced.")
    assert after(state, told, operator=INJECTION).injected == ("a",)
    assert after(state, told, operator=REPLACEMENT).injected == ()


def test_an_option_remembers_admitted_children_alone(member: Make) -> None:
    """A duplicate by score tells nothing then (D31)."""
    settings = SearchSettings(population_size=2, components="admitted")
    results = [valid(-1.0, "The new component a has been introduced."), INVALID]
    results.append(valid(-2.0, "The new component b has been introduced."))
    state = state_of((member(-1),), ())
    for chosen, told in ((SETTINGS, ("a", "b")), (settings, ("b",))):
        new, _ = transition(state, results, operator=INJECTION, step=1, settings=chosen)
        assert new.injected == told


def test_a_group_is_admitted_completion_by_completion(member: Make) -> None:
    """The second of two equal children is a duplicate, and every completion has its event."""
    state = state_of((member(-3.0),), ())
    results = [INVALID, valid(-2.0, code="a"), valid(-2.0 + 5e-8, code="b"), valid(-3.0, code="c")]
    new, events = transition(state, results, operator=INJECTION, step=4, settings=SETTINGS)
    assert events == (
        ArchiveEvent.INVALID,
        ArchiveEvent.ADMITTED,
        ArchiveEvent.DUPLICATE_SCORE,
        ArchiveEvent.DUPLICATE_SCORE,
    )
    child = new.archive[-1]
    assert (child.score, child.step, child.index, child.operator) == (-2.0, 4, 1, INJECTION)


def test_only_a_child_above_the_best_resets_the_counter(member: Make) -> None:
    """An admitted child below it does not."""
    state = replace(state_of((member(-1.0), member(-3.0)), ()), stagnation=5, used_prompts=frozenset({"p"}))
    assert after(state, valid(-2.0)).stagnation == 6
    assert after(state, valid(-0.5), valid(-2.0)).stagnation == 0
    assert after(state, valid(-1.0)).stagnation == 6
    assert after(state, INVALID).used_prompts == frozenset()


def test_a_child_too_near_the_best_to_be_admitted_resets_the_counter(member: Make) -> None:
    """It beats the best by less than two heuristics must differ to be two."""
    state = replace(state_of((member(-1.0), member(-3.0)), ()), stagnation=5)
    new = after(state, valid(-1.0 + 5e-8))
    assert (len(new.archive), new.stagnation) == (2, 0)


@pytest.mark.parametrize(
    ("outcome", "score"),
    [
        (Outcome.VALID, None),
        (Outcome.VALID, float("nan")),
        (Outcome.RANDOMNESS, 1.0),
        (Outcome.RUNTIME_FAILURE, float("inf")),
    ],
)
def test_outcome_and_score_must_agree(outcome: Outcome, score: float | None) -> None:
    """A score that is not finite never reaches the archive (D17)."""
    with pytest.raises(RecordError):
        Evaluated(outcome, score=score)


def test_a_used_prompt_is_drawn_again_and_creation_is_the_last_resort(member: Make) -> None:
    """Within one round no prompt comes twice, until none is left."""
    state = state_of((member(-1),), ())
    rng = np.random.default_rng(3)
    draws = []
    for _ in range(4):
        draws.append(plan_round(state, rng, SETTINGS, lambda draw: draw.operator))
        state = draws[-1].state
    assert {draw.operator for draw in draws[:3]} == {SIMPLIFICATION, INJECTION, REPLACEMENT}
    assert (draws[3].operator, draws[3].parents, draws[3].bases) == (CREATION, (), ())
    assert state.used_prompts == {draw.operator for draw in draws}


def test_an_earlier_rounds_prompt_is_not_avoided(member: Make) -> None:
    """The transition forgets, so the same lone prompt comes again."""
    only = SearchSettings(simplification=1, injection=0, replacement=0, crossover=0, population_size=1)
    state = state_of((member(-1),), ())
    for _ in range(2):
        draw = plan_round(state, np.random.default_rng(0), only, lambda draw: draw.operator)
        assert draw.operator == SIMPLIFICATION
        state = after(draw.state, INVALID)


def test_an_empty_archive_asks_for_a_creation() -> None:
    """Nothing to build on is no error."""
    draw = plan_round(state_of((), ()), np.random.default_rng(0), SETTINGS, lambda draw: "p")
    assert (draw.operator, draw.parents, draw.prompt) == (CREATION, (), "p")


def test_a_replacement_draws_one_of_three_wordings(member: Make) -> None:
    """All three come up; the other operators have none."""
    state, rng = state_of((member(-1),), ()), np.random.default_rng(5)
    draws: list[Draw] = [plan_round(state, rng, SETTINGS, lambda draw: "p") for _ in range(100)]
    assert {draw.variant for draw in draws if draw.operator == REPLACEMENT} == {0, 1, 2}
    assert {draw.variant for draw in draws if draw.operator != REPLACEMENT} == {0}
