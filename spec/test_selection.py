"""Selection against closed forms in fractions, and the sampler against the closed forms."""

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from search_to_signal.records.schema import Outcome
from search_to_signal.search.hosts.calm.host import (
    crossover_pairs,
    draw_crossover,
    draw_parents,
    exposures,
    plan_round,
)
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, collapse_due, state_of
from search_to_signal.search.member import Evaluated, Member
from spec.profiles import many

SETTINGS = SearchSettings(population_size=4)
Shown = tuple[str, float]

ideas = st.lists(st.sampled_from("abcde"), max_size=4).map(" ".join)
scores = st.builds(lambda whole, hair: whole + hair * 4e-8, st.integers(0, 5), st.integers(-2, 2))
archives = st.lists(st.tuples(ideas, scores), min_size=1, max_size=8)
populations = st.integers(1, 5)


def state_from(shown: Sequence[Shown]) -> SearchState:
    members = [Member(idea, f"x = {i}", score, None, 0, i, str(i)) for i, (idea, score) in enumerate(shown)]
    return state_of(members, ()).listed()


def model_pairs(archive: Sequence[Shown], size: int) -> dict[tuple[int, int], Fraction]:
    """Every way a crossover draw can go, by listing positions, given that it ends (HOST.md, point 11)."""

    def by_rank(count: int) -> list[Fraction]:
        total = sum(Fraction(1, rank) for rank in range(1, count + 1))
        return [Fraction(1, rank) / total for rank in range(1, count + 1)]

    def distance(idea: str, first: str) -> Fraction:
        own, known = set(re.findall(r"\w+", idea)), set(re.findall(r"\w+", first))
        return Fraction(len(own - known), len(own)) if own else Fraction(0)

    head, pairs = by_rank(min(size, len(archive))), Counter[tuple[int, int]]()
    for first, chance in enumerate(head):
        for second, other in enumerate(head):
            if not abs(archive[first][1] - archive[second][1]) < 1e-7:
                pairs[first, second] += chance * other / 2
        far = [distance(idea, archive[first][0]) for idea, _ in archive]
        ranked = sorted(range(len(archive)), key=lambda position: -far[position])
        for second, other in zip(ranked, by_rank(len(archive)), strict=True):
            if far[second] > 0:
                pairs[first, second] += chance * other / 2
    total = sum(pairs.values())
    return {pair: chance / total for pair, chance in pairs.items()}


def model_exposure(archive: Sequence[Shown], candidate: Shown, size: int, admission: bool) -> Fraction:
    """D13 by enumeration: every operator, every parent, every pair."""
    if admission and any(abs(score - candidate[1]) < 1e-7 for _, score in archive):
        return Fraction(0)
    position = sum(score > candidate[1] for _, score in archive)
    after = [*archive[:position], candidate, *archive[position:]]
    weights = [1, 1, 2, 4 if len(after) > 1 else 0]
    weights[1] = max(weights) if len(after) < size else 1
    alone = Fraction(0)
    if position < size:
        alone = Fraction(1, position + 1) / sum(Fraction(1, r) for r in range(1, min(size, len(after)) + 1))
    crossing = sum(chance for pair, chance in model_pairs(after, size).items() if position in pair)
    return (sum(weights[:3]) * alone + weights[3] * crossing) / sum(weights)


def shown(state: SearchState) -> list[Shown]:
    return [(member.idea, member.score) for member in state.archive]


@settings(max_examples=many(150), deadline=None)
@given(archives, populations)
def test_crossover_pairs_are_exact(members: list[Shown], size: int) -> None:
    """R-HOST-06: starting again is a conditioning; every pair has the chance that enumeration gives."""
    state = state_from(members)
    head = state.archive[:size]
    pairs = crossover_pairs(
        np.array([m.score for m in head]), np.array([state.distances(member) for member in head])
    )
    expected = np.zeros_like(pairs)
    for pair, chance in model_pairs(shown(state), size).items():
        expected[pair] = float(chance)
    np.testing.assert_allclose(pairs, expected, rtol=1e-12, atol=1e-15)


@settings(max_examples=many(150), deadline=None)
@given(archives, st.tuples(ideas, scores), populations, st.booleans())
def test_exposure_is_exact(members: list[Shown], candidate: Shown, size: int, admission: bool) -> None:
    """R-HOST-07 (D13): exposure equals the enumeration, with the admission rule and without."""
    state, result = state_from(members), Evaluated(Outcome.VALID, candidate[0], "", candidate[1])
    sizes = SearchSettings(population_size=size)
    (got,) = exposures(state, [result], sizes, unconditional=not admission)
    expected = model_exposure(shown(state), candidate, size, admission)
    assert got == pytest.approx(float(expected), rel=1e-12, abs=1e-15)


def test_exposure_of_an_invalid_completion_is_absent() -> None:
    """R-HOST-07 (D13): None for a failure; a lone candidate is every parent."""
    failed, lone = Evaluated(Outcome.RUNTIME_FAILURE), Evaluated(Outcome.VALID, "a", "", 1.0)
    assert exposures(state_of((), ()), [failed, lone], SETTINGS) == (None, 1.0)


ARCHIVE = (
    ("near node", 6.0), ("near far", 5.0), ("far spread", 4.0), ("near", 3.0),
    ("spread walk far", 2.0), ("", 1.0), ("walk", 0.0),
)  # fmt: skip


def fits(counts: Counter[str], chances: dict[str, float]) -> bool:
    """Chi-square at one in a thousand; what has no chance must not occur."""
    names = [name for name, chance in chances.items() if chance > 0]
    draws = sum(counts.values())
    expected = [chances[name] * draws for name in names]
    p_value = chisquare([counts[name] for name in names], expected).pvalue
    return set(counts) <= set(names) and bool(p_value > 1e-3)


@pytest.mark.parametrize(
    ("members", "weights"), [(1, (1, 2, 2, 0)), (3, (1, 4, 2, 4)), (4, (1, 1, 2, 4)), (7, (1, 1, 2, 4))]
)
def test_operators_occur_as_often_as_the_host_says(members: int, weights: tuple[int, ...]) -> None:
    """R-HOST-08: one member, filling and full, through the real planning of rounds."""
    state, rng = state_from(ARCHIVE[:members]), np.random.default_rng(20)
    counts = Counter(plan_round(state, rng, SETTINGS, lambda draw: "").operator for _ in range(4000))
    names = ("simplification", "injection", "replacement", "crossover")
    assert fits(counts, {name: w / sum(weights) for name, w in zip(names, weights, strict=True)})


def positions(state: SearchState, parents: Sequence[Member]) -> str:
    """Listing positions of parents, by the identity that state_from gives."""
    listing = [member.id for member in state.archive]
    return ",".join(str(listing.index(parent.id)) for parent in parents)


def test_lone_parents_occur_by_inverse_rank() -> None:
    """R-HOST-09: from the head alone, 1, 1/2, 1/3, 1/4."""
    state, rng = state_from(ARCHIVE), np.random.default_rng(21)
    drawn = (draw_parents(state, SETTINGS, rng) for _ in range(4000))
    counts = Counter(positions(state, pair[1]) for pair in drawn if pair and len(pair[1]) == 1)
    assert fits(counts, {"0": 12 / 25, "1": 6 / 25, "2": 4 / 25, "3": 3 / 25})


def test_crossover_pairs_occur_as_often_as_enumeration_says() -> None:
    """R-HOST-09: the sampler that starts again has the conditioned distribution."""
    state, rng = state_from(ARCHIVE), np.random.default_rng(24)
    drawn = (draw_crossover(state, SETTINGS, rng) for _ in range(25_000))
    counts = Counter(positions(state, pair) for pair in drawn if pair is not None)
    model = model_pairs(shown(state), SETTINGS.population_size)
    assert fits(counts, {f"{first},{second}": float(chance) for (first, second), chance in model.items()})


@pytest.mark.parametrize(
    "candidate", [("new words", 7.0), ("near", 4.5), ("other words", 0.5), ("near", -1.0)]
)
def test_exposure_is_the_frequency_of_the_sampler(candidate: Shown) -> None:
    """R-HOST-10 (D13): the closed form and the Monte Carlo alternative tell one number."""
    state, draws = state_from(ARCHIVE), 6000
    result = Evaluated(Outcome.VALID, candidate[0], "", candidate[1])
    (exact,) = exposures(state, [result], SETTINGS)
    inserted = Member(candidate[0], "", candidate[1], None, step=0, index=0, id="candidate")
    after, rng = state.extended((inserted,)).listed(), np.random.default_rng(22)
    drawn = (draw_parents(after, SETTINGS, rng) for _ in range(draws))
    sampled = sum(pair is not None and inserted in pair[1] for pair in drawn) / draws
    assert exact is not None
    assert abs(sampled - exact) <= 3.5 * np.sqrt(exact * (1 - exact) / draws)


@pytest.mark.parametrize(("stagnation", "chance"), [(1, 0.0005), (24, 0.012)])
def test_collapses_occur_as_often_as_the_host_says(stagnation: int, chance: float) -> None:
    """R-HOST-11: a chance of 0.0005 per stagnant round, below the threshold."""
    rng = np.random.default_rng(23)
    counts = Counter(str(collapse_due(stagnation, SearchSettings(), rng)) for _ in range(60_000))
    assert fits(counts, {"True": chance, "False": 1 - chance})
