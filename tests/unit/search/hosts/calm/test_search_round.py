"""Components and planning at their edges; spec/test_host.py holds rounds and collapses to a model."""

from collections.abc import Callable

import numpy as np
import pytest

from search_to_signal.base.errors import RecordError
from search_to_signal.records.schema import Outcome
from search_to_signal.search.hosts.calm.host import Draw, plan_round
from search_to_signal.search.hosts.calm.prompts import CREATION, INJECTION, REPLACEMENT, SIMPLIFICATION
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import component, state_of, transition
from search_to_signal.search.member import Evaluated, Member

Make = Callable[..., Member]
SETTINGS = SearchSettings(population_size=2)
INVALID = Evaluated(Outcome.RUNTIME_FAILURE)


def valid(score: float, response: str = "", code: str = "x = 1") -> Evaluated:
    return Evaluated(Outcome.VALID, "idea", code, score, response=response)


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


def test_an_option_remembers_admitted_children_alone(member: Make) -> None:
    """A duplicate by score tells nothing then (D31)."""
    settings = SearchSettings(population_size=2, components="admitted")
    results = [valid(-1.0, "The new component a has been introduced."), INVALID]
    results.append(valid(-2.0, "The new component b has been introduced."))
    state = state_of((member(-1),), ())
    for chosen, told in ((SETTINGS, ("a", "b")), (settings, ("b",))):
        new, _ = transition(state, results, operator=INJECTION, step=1, settings=chosen)
        assert new.injected == told


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
