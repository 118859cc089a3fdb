"""Pre-generation tail weighting (paper, eq. tail-tilt; supplement, Pre-Generation Tail Weighting)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from search_to_signal.base.errors import IllFormedGroupError
from search_to_signal.base.numerics import midranks
from search_to_signal.credit import RewardMapping
from search_to_signal.credit.base import tilted
from search_to_signal.credit.mappings import TailWeighted
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import Outcome
from spec import plain
from spec.strategies import FAILURES, Floats, dyadics, group, groups, ordinary_groups, ordinary_scores, sizes

LOG2 = math.log(2.0)
FAILED = Outcome.RUNTIME_FAILURE


def divergence(reward: Floats) -> float:
    """KL(omega || uniform) of one group, from its rewards G omega."""
    return float(sum(r * math.log(r) for r in reward if r > 0.0) / len(reward))


@given(batch=groups())
def test_weights(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-01: Rewards are G times a distribution: non-negative and summing to G."""
    reward = tail_weighted(batch).reward
    assert (reward >= 0.0).all()
    assert reward.sum() == pytest.approx(batch.outcome.shape[1], rel=1e-12)


@given(batch=groups())
def test_divergence(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-02: The KL from uniform is min(log 2, log(G / k)) to 1e-10, k counting the tied maxima (D12)."""
    reward = tail_weighted(batch).reward[0]
    ties = int((reward >= reward.max() * (1.0 - 1e-9)).sum())
    assert divergence(reward) == pytest.approx(min(LOG2, math.log(len(reward) / ties)), abs=1e-10)


@pytest.mark.parametrize("size", range(2, 17))
def test_tied_maxima(tail_weighted: RewardMapping, size: int) -> None:
    """R-TAIL-03: Of G with k tied maxima and 2 k >= G, the k share all weight; else KL is log 2 (D12)."""
    for ties in range(1, size + 1):
        reward = tail_weighted(
            group([-6.0] * ties + [FAILED] * (size - ties), bases=[-6.0], frontier=-6.0)
        ).reward[0]
        if 2 * ties >= size:
            expected = [size / ties] * ties + [0.0] * (size - ties)
            np.testing.assert_allclose(reward, expected, rtol=1e-15, atol=0.0)
        else:
            assert (reward[ties:] > 0.0).all()
            assert divergence(reward) == pytest.approx(LOG2, abs=1e-10)


@given(size=sizes, score=ordinary_scores)
def test_constant(tail_weighted: RewardMapping, size: int, score: float) -> None:
    """R-TAIL-04: A constant group is uniform: every reward is exactly 1 (D12)."""
    for member in (score, FAILED):
        batch = group([member] * size, bases=[-6.0], frontier=-6.0, responses=[0] * size)
        assert tail_weighted(batch).reward.tolist() == [[1.0] * size]


@given(batch=ordinary_groups())
def test_exponential_tilt(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-05: The log of the reward is affine in w = u + g / 2, with a slope that is not negative."""
    result = tail_weighted(batch)
    utility = (result.components["midrank"] + 0.5 * result.components["gap"])[0]
    reward = result.reward[0]
    assume((reward > 1e-200).all() and np.ptp(utility) > 0.0 and np.ptp(reward) > 0.0)
    slope = np.log(reward.max() / reward.min()) / np.ptp(utility)
    expected = reward.max() * np.exp(slope * (utility - utility.max()))
    np.testing.assert_allclose(reward, expected, rtol=1e-9)
    assert slope > 0.0


@given(batch=groups())
def test_monotone_in_utility(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-06: A higher w never gets less, an equal w gets the same."""
    result = tail_weighted(batch)
    utility = (result.components["midrank"] + 0.5 * result.components["gap"])[0]
    order = np.argsort(utility, kind="stable")
    rises, gains = np.diff(utility[order]), np.diff(result.reward[0][order])
    assert (gains >= 0.0).all()
    assert (gains[rises == 0.0] == 0.0).all()


@given(batch=groups())
def test_failures_lowest(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-07: No failure is above any valid completion, nor above a failure of lower severity (D07)."""
    reward = tail_weighted(batch).reward[0]
    level = [
        plain.SEVERITIES.get(FAILURES[code - 1].value, 0.0) if code else 0.0
        for code in batch.outcome[0].tolist()
    ]
    for i, low in enumerate(level):
        for j, high in enumerate(level):
            assert not low < high or reward[i] <= reward[j]


def test_severity_order(tail_weighted: RewardMapping) -> None:
    """R-TAIL-08: Failures rank by Native severity: rationale lowest, randomness highest (D07)."""
    batch = group([*FAILURES, -6.0], bases=[-6.0], frontier=-6.0)
    assert (np.diff(tail_weighted(batch).reward[0]) > 0.0).all()


def test_novelty_before_score(tail_weighted: RewardMapping) -> None:
    """R-TAIL-09: A score new to the archive ranks above a better one that the archive holds (D07, D22)."""
    batch = group([-8.0, -7.0, -6.5, FAILED, FAILED], bases=[-6.0], frontier=-6.0, gap=[1.0, 0.0, 0.0, 0, 0])
    reward = tail_weighted(batch).reward[0]
    assert reward[0] > reward[2] > reward[1] > reward[3]


def test_novelty_edge(tail_weighted: RewardMapping) -> None:
    """R-TAIL-10: A score is archived when the nearest archived one is closer than 1e-7 (D08)."""
    near = group(
        [-8.0, -7.0, FAILED], bases=[-6.0], frontier=-6.0, gap=[1e-7, math.nextafter(1e-7, 0.0), 0.0]
    )
    assert tail_weighted(near).reward[0, 0] > tail_weighted(near).reward[0, 1]
    exact = TailWeighted(novelty=0.0)(replace(near, archive_gap=np.array([[0.0, 5e-324, np.nan]]))).reward[0]
    assert exact[1] > exact[0]


def test_repetition_before_score(tail_weighted: RewardMapping) -> None:
    """R-TAIL-11: A response that occurs once ranks above better ones that are repeated (D07)."""
    batch = group([-8.0, -7.0, -7.0, FAILED, FAILED], bases=[-6.0], frontier=-6.0, responses=[0, 1, 1, 2, 3])
    reward = tail_weighted(batch).reward[0]
    assert reward[0] > reward[1] == reward[2] > reward[3]


def test_every_copy_counts(tail_weighted: RewardMapping) -> None:
    """R-TAIL-12: Every member of a set of identical responses is repeated; an option spares one (D09)."""
    batch = group([-7.0, -7.0, -8.0, FAILED, FAILED], bases=[-6.0], frontier=-6.0, responses=[1, 1, 0, 2, 3])
    reward = tail_weighted(batch).reward[0]
    assert reward[0] == reward[1] < reward[2]
    spared = TailWeighted(repetition="all_but_first")(batch).reward[0]
    assert spared[0] > spared[2] > spared[1]


def test_novelty_before_repetition() -> None:
    """R-TAIL-13: Novelty is compared before repetition; counting both together is the alternative (D07)."""
    batch = group(
        [-8.0, -8.0, -7.0, FAILED],
        bases=[-6.0],
        frontier=-6.0,
        gap=[1.0, 1.0, 0.0, 0.0],
        responses=[0, 0, 1, 2],
    )
    lexicographic = TailWeighted()(batch).components["midrank"][0]
    assert lexicographic[0] == lexicographic[1] > lexicographic[2]
    summed = TailWeighted(order="summed")(batch).components["midrank"][0]
    assert summed[2] > summed[0] == summed[1]
    score_first = TailWeighted(order="score_first")(batch).components["midrank"][0]
    assert score_first[2] > score_first[0]


@given(scores=st.lists(ordinary_scores, min_size=2, max_size=16), threshold=ordinary_scores)
def test_redundant_tier(scores: list[float], threshold: float) -> None:
    """R-TAIL-14: A tier that is itself monotone in score changes no midrank (the paper's no-op)."""
    row = np.array([scores])
    np.testing.assert_array_equal(midranks((row > threshold).astype(float), row), midranks(row))


@given(batch=groups())
def test_midrank(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-15: u averages tied ranks, lies in [0, 1], and has mean 1/2 (D10)."""
    u, size = tail_weighted(batch).components["midrank"][0], batch.outcome.shape[1]
    assert u.min() >= 0.0
    assert u.max() <= 1.0
    assert u.mean() == pytest.approx(0.5, abs=1e-12)
    np.testing.assert_allclose(u * 2 * (size - 1), np.round(u * 2 * (size - 1)), rtol=0.0, atol=1e-9)


@given(batch=groups())
def test_gap(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-16: g is positive above the frontier, with RMS 1 over the eligible set, else zero (D11)."""
    g = tail_weighted(batch).components["gap"][0]
    above = batch.eligible[0] & (batch.score[0] > batch.frontier[0])
    assert (g[~above] == 0.0).all()
    if above.any():
        assert math.sqrt(np.mean(np.square(g[batch.eligible[0]]))) == pytest.approx(1.0, abs=1e-12)


def test_gap_hand(tail_weighted: RewardMapping) -> None:
    """R-TAIL-17: Of two that beat the pre-generation frontier the further one gains by its distance (D22)."""
    near = tail_weighted(group([-5.9, -5.8, -7.0, -8.0, FAILED], bases=[-6.0], frontier=-6.0)).reward[0]
    far = tail_weighted(group([-5.9, -3.0, -7.0, -8.0, FAILED], bases=[-6.0], frontier=-6.0)).reward[0]
    none = tail_weighted(group([-5.9, -5.8, -7.0, -8.0, FAILED], bases=[-6.0], frontier=-1.0)).reward[0]
    assert far[1] > near[1] > none[1]


@given(batch=groups(compared=True, frontier=True))
def test_no_frontier(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-18: Without a frontier or without a comparator there is no gap (D05, D11)."""
    empty = replace(batch, frontier=np.array([np.nan]))
    assert not tail_weighted(empty).components["gap"].any()
    alone = replace(batch, bases=np.empty((1, 0)))
    assert not tail_weighted(alone).components["gap"].any()


@given(batch=groups(scores=dyadics, frontier=True), power=st.integers(0, 8), shift=st.integers(-1024, 1024))
def test_scale_and_shift(tail_weighted: RewardMapping, batch: GroupBatch, power: int, shift: int) -> None:
    """R-TAIL-19: Scaling and shifting all scores together changes nothing, novelty being given."""
    factor = 2.0**power
    rounded = replace(batch, score=np.round(batch.score * 1024.0) / 1024.0)
    moved = replace(
        rounded,
        score=rounded.score * factor + shift,
        bases=rounded.bases * factor + shift,
        frontier=rounded.frontier * factor + shift,
    )
    np.testing.assert_allclose(
        tail_weighted(moved).reward, tail_weighted(rounded).reward, rtol=0.0, atol=1e-9
    )


@given(batch=groups(compared=True), other=st.integers(0, 2**32 - 1))
def test_reads_pre_generation_state(tail_weighted: RewardMapping, batch: GroupBatch, other: int) -> None:
    """R-TAIL-20: Values of the bases and exposures do not matter; frontier, novelty, repetition do (D22)."""
    noise = np.random.default_rng(other)
    changed = replace(batch, bases=noise.normal(size=(1, 2)), exposure=noise.random(batch.outcome.shape))
    np.testing.assert_array_equal(tail_weighted(changed).reward, tail_weighted(batch).reward)


@given(batch=ordinary_groups())
def test_plain(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-21: Tail weighting is what the plain transcription of the paper says."""
    expected = plain.rewards("tail_weighted", batch)
    np.testing.assert_allclose(tail_weighted(batch).reward, expected, rtol=0.0, atol=1e-9)


def test_missing_gap(tail_weighted: RewardMapping) -> None:
    """R-TAIL-22: A valid completion without archive gap beside a non-empty archive is refused by name."""
    with pytest.raises(IllFormedGroupError, match="archive gap"):
        tail_weighted(group([-6.0], bases=[-6.0], frontier=-6.0, gap=[np.nan]))


@pytest.mark.parametrize("distance", [2e-12, 1e-11, 1e-9, 1e-6])
def test_near_ties(distance: float) -> None:
    """R-TAIL-23: Maxima that differ by more than 1e-12 are no tie: the target is met however steep (D12)."""
    weights = tilted(np.array([[1.0, 1.0 - distance, 0.0]]))[0]
    assert divergence(3.0 * weights) == pytest.approx(LOG2, abs=1e-10)
    tied = tilted(np.array([[1.0, 1.0 - 5e-13, 0.0]]))[0]
    assert tied.tolist() == [0.5, 0.5, 0.0]


@given(batch=groups(compared=False, frontier=True))
def test_gap_of_a_creation(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-24: After a creation prompt the supplement's g is zero; the main text's need not be (D28)."""
    assert not tail_weighted(batch).components["gap"].any()
    g, above = TailWeighted(gap="valid")(batch).components["gap"][0], batch.score[0] > batch.frontier[0]
    assert (g[~above] == 0.0).all()
    if above.any():
        assert math.sqrt(np.mean(np.square(g[batch.valid[0]]))) == pytest.approx(1.0, abs=1e-12)


@given(batch=groups(compared=True))
def test_gap_beside_a_comparator(tail_weighted: RewardMapping, batch: GroupBatch) -> None:
    """R-TAIL-25: Beside a comparator, and without a frontier, both readings of g are one (D28)."""
    other = TailWeighted(gap="valid")
    np.testing.assert_array_equal(other(batch).reward, tail_weighted(batch).reward)
    empty = replace(batch, frontier=np.array([np.nan]), bases=np.empty((1, 0)))
    np.testing.assert_array_equal(other(empty).reward, tail_weighted(empty).reward)
