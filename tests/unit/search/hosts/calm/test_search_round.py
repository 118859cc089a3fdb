"""Components, planning, archive, parents and settings at their edges; spec/ has the distributions."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.records.schema import Outcome
from search_to_signal.search.hosts.calm.host import (
    Draw,
    draw_crossover,
    draw_index,
    draw_index_or_none,
    pair_exists,
    plan_round,
)
from search_to_signal.search.hosts.calm.prompts import (
    CREATION,
    INJECTION,
    OPERATORS,
    REPLACEMENT,
    SIMPLIFICATION,
    operator_probabilities,
)
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import (
    bases,
    collapse_probability,
    component,
    equal,
    state_of,
    transition,
)
from search_to_signal.search.member import Evaluated, Member, archive_gap, frontier

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
    state = state_of((member(-1),), ())
    rng = np.random.default_rng(3)
    draws = []
    for _ in range(4):
        draws.append(plan_round(state, rng, SETTINGS, lambda draw: draw.operator))
        state = draws[-1].state
    assert {draw.operator for draw in draws[:3]} == {SIMPLIFICATION, INJECTION, REPLACEMENT}
    assert (draws[3].operator, draws[3].parents, draws[3].bases) == (CREATION, (), ())
    assert state.used_prompts == {draw.operator for draw in draws}


def test_a_creation_and_a_replacement_are_drawn(member: Make) -> None:
    draw = plan_round(state_of((), ()), np.random.default_rng(0), SETTINGS, lambda draw: "p")
    assert (draw.operator, draw.parents, draw.prompt) == (CREATION, (), "p")
    state, rng = state_of((member(-1),), ()), np.random.default_rng(5)
    draws: list[Draw] = [plan_round(state, rng, SETTINGS, lambda draw: "p") for _ in range(100)]
    assert {draw.variant for draw in draws if draw.operator == REPLACEMENT} == {0, 1, 2}
    assert {draw.variant for draw in draws if draw.operator != REPLACEMENT} == {0}


def test_pairs_that_can_be_crossed(member: Make) -> None:
    """A head of one, and ideas without a new word: starting again would never end."""
    state = state_of((member(2, "a"), member(1, "a")), ())
    settings = SearchSettings(population_size=1)
    assert not pair_exists(state, settings)
    assert draw_crossover(state, settings, np.random.default_rng(1)) is None
    diverse = state_of((member(2, "a"), member(1, "b")), ())
    assert draw_crossover(diverse, settings, np.random.default_rng(1)) == diverse.archive
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


@pytest.mark.parametrize(
    "wrong",
    [
        {"population_size": 0},
        {"collapse_threshold": -2},
        {"crossover": -1.0},
        {"collapse_speed": float("nan")},
        {"simplification": 0, "injection": 0, "replacement": 0, "crossover": 0},
    ],
)
def test_impossible_settings_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="give"):
        msgspec.convert(wrong, SearchSettings)


def test_unknown_settings_and_unknown_groups_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="populationsize"):
        msgspec.convert({"populationsize": 3}, SearchSettings)
    with pytest.raises(ConfigError, match="collapse_threshold"):
        collapse_probability(3, SearchSettings(collapse_threshold=-1))
    only = SearchSettings(simplification=0, injection=0, replacement=0, crossover=1, population_size=1)
    assert operator_probabilities(1, only).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("groups", "threshold"), [(500, 25), (4000, 200), (60, 3), (39, 1), (19, 0)])
def test_a_threshold_may_be_a_twentieth_of_the_groups(groups: int, threshold: int) -> None:
    """Rounded down, so that fewer than twenty groups collapse before every prompt; any other number stays."""
    assert SearchSettings(collapse_threshold=-1).over(groups).collapse_threshold == threshold
    assert SearchSettings(collapse_threshold=7).over(groups).collapse_threshold == 7


@pytest.mark.parametrize(
    ("size", "weights"),
    [(1, (1, 2, 2, 0)), (2, (1, 4, 2, 4)), (9, (1, 4, 2, 4)), (10, (1, 1, 2, 4)), (5000, (1, 1, 2, 4))],
)
def test_operator_weights_fill_first(size: int, weights: tuple[int, ...]) -> None:
    assert OPERATORS[1] == INJECTION
    expected = [weight / sum(weights) for weight in weights]
    assert operator_probabilities(size, SearchSettings()).tolist() == pytest.approx(expected, abs=1e-15)
