"""Settings refuse what cannot be searched with, in words that help."""

import msgspec
import pytest

from search_to_signal.base.errors import ConfigError
from search_to_signal.search.hosts.calm.prompts import INJECTION, OPERATORS, operator_probabilities
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import collapse_probability


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
    """Out of range, not finite, or no operator at all."""
    with pytest.raises(ConfigError, match="give"):
        msgspec.convert(wrong, SearchSettings)


def test_unknown_settings_are_rejected() -> None:
    """A misspelt knob is an error."""
    with pytest.raises(msgspec.ValidationError, match="populationsize"):
        msgspec.convert({"populationsize": 3}, SearchSettings)


@pytest.mark.parametrize(("groups", "threshold"), [(500, 25), (4000, 200), (60, 3), (39, 1), (19, 0)])
def test_a_threshold_may_be_a_twentieth_of_the_groups(groups: int, threshold: int) -> None:
    """Rounded down, so that fewer than twenty groups collapse before every prompt; any other number stays."""
    assert SearchSettings(collapse_threshold=-1).over(groups).collapse_threshold == threshold
    assert SearchSettings(collapse_threshold=7).over(groups).collapse_threshold == 7


def test_a_twentieth_of_nothing_known_never_collapses_silently() -> None:
    """Without the groups of a run -1 is no threshold, and asking for a collapse says so."""
    with pytest.raises(ConfigError, match="collapse_threshold"):
        collapse_probability(3, SearchSettings(collapse_threshold=-1))


@pytest.mark.parametrize(
    ("size", "weights"),
    [(1, (1, 2, 2, 0)), (2, (1, 4, 2, 4)), (9, (1, 4, 2, 4)), (10, (1, 1, 2, 4)), (5000, (1, 1, 2, 4))],
)
def test_operator_weights_fill_first(size: int, weights: tuple[int, ...]) -> None:
    """The three stages of the host: one member, filling, full."""
    assert OPERATORS[1] == INJECTION
    expected = [weight / sum(weights) for weight in weights]
    assert operator_probabilities(size, SearchSettings()).tolist() == pytest.approx(expected, abs=1e-15)


def test_no_usable_operator_has_no_probability() -> None:
    """With crossover alone, one member leaves nothing to draw."""
    only = SearchSettings(simplification=0, injection=0, replacement=0, crossover=1, population_size=1)
    assert operator_probabilities(1, only).tolist() == [0, 0, 0, 0]
