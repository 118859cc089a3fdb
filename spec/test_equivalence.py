"""Which mappings are one and the same to the learner (paper, Implemented learner equivalence; D21)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from search_to_signal.base.numerics import Floats, midranks
from search_to_signal.credit import MAPPINGS, RewardMapping
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import Outcome
from spec.strategies import FAILURES, group, ordinary_groups, ordinary_scores, reward_rows, sizes

EQUIVALENT = 1e-3
FAILED = Outcome.RUNTIME_FAILURE


def advantages(name: str, batch: GroupBatch) -> Floats:
    """Advantages of one group under a built-in mapping, (G,)."""
    return group_advantages(MAPPINGS[name](batch).reward)[0]


@given(batch=ordinary_groups(compared=True, frontier=True))
def test_context_offset(mapping: RewardMapping, batch: GroupBatch) -> None:
    """R-EQV-01: Comparator or frontier added to every reward of a group is erased exactly."""
    # On a grid of 2^-20 the sums are exact, so the offset has to vanish to the last bit.
    grid = 2.0**20
    reward = np.round(mapping(batch).reward * grid) / grid
    for context in (batch.best_base, batch.frontier):
        shifted = reward + np.round(context * grid)[:, None] / grid
        np.testing.assert_array_equal(group_advantages(shifted), group_advantages(reward))


@given(rewards=reward_rows(), slope=st.floats(1.0, 10.0), offset=st.floats(-10.0, 10.0))
def test_affine_family(rewards: Floats, slope: float, offset: float) -> None:
    """R-EQV-02: Positive affine images are equivalent at 1e-3 once the deviation reaches 0.375 (D21)."""
    # |d| (a - 1) e / ((a s + e) (s + e)) < |d| e / s^2 and |d| <= 3.75 s at G = 16, so s >= 3.75 e / 1e-3.
    assume(rewards.std(ddof=1) >= 0.375)
    moved = group_advantages(slope * rewards + offset) - group_advantages(rewards)
    assert np.abs(moved).max() <= EQUIVALENT


def test_low_variance_is_not_equivalent() -> None:
    """R-EQV-03: In a low-variance group a positive factor does survive, through the stabilizer alone."""
    rewards = np.array([[0.0, 0.0, 0.0, 1e-4]])
    moved = group_advantages(100.0 * rewards) - group_advantages(rewards)
    assert np.abs(moved).max() > 0.5


@given(
    size=st.integers(2, 8), valid=st.integers(1, 7), failure=st.sampled_from(FAILURES), score=ordinary_scores
)
def test_two_values(size: int, valid: int, failure: Outcome, score: float) -> None:
    """R-EQV-04: Two reward values carry one signal: up to G = 8 order-preserving mappings agree at 1e-3."""
    # A step h = 0.75 has s >= h / sqrt(G), so the stabilizer takes at most (G - 1) e / h < 1e-3 up to G = 8.
    assume(valid < size)
    members: list[float | Outcome] = [score] * valid + [failure] * (size - valid)
    batch = group(members, bases=[score], frontier=score, responses=[0] * size)
    results = [advantages(name, batch) for name in ("native", "factorized", "tail_weighted")]
    assert np.abs(results[0] - results[1]).max() <= EQUIVALENT
    assert np.abs(results[0] - results[2]).max() <= EQUIVALENT


@given(size=sizes, score=ordinary_scores)
def test_all_equal(mapping: RewardMapping, size: int, score: float) -> None:
    """R-EQV-05: A group that repeats one response is erased under every mapping."""
    batch = group([score] * size, bases=[score], frontier=score, responses=[0] * size)
    assert not group_advantages(mapping(batch).reward).any()


@given(size=sizes, data=st.data())
def test_failure_types(size: int, data: st.DataObject) -> None:
    """R-EQV-06: When all fail in different ways, Native teaches and Factorized does not."""
    kinds = data.draw(st.lists(st.sampled_from(FAILURES), min_size=size, max_size=size))
    assume(len(set(kinds)) > 1)
    batch = group(kinds, bases=[-6.0], frontier=-6.0)
    assert np.abs(advantages("native", batch)).max() > 0.3
    assert not advantages("factorized", batch).any()


def test_spacing_survives() -> None:
    """R-EQV-07: Equal order is not equal signal: Native and Factorized space three scores differently."""
    batch = group([-5.0, -6.5, -9.0, -9.0], bases=[-6.0], frontier=-6.0)
    native, factorized = advantages("native", batch), advantages("factorized", batch)
    np.testing.assert_array_equal(midranks(native[None, :]), midranks(factorized[None, :]))
    assert np.abs(native - factorized).max() > 100 * EQUIVALENT


def test_improvers_are_nearly_flat_under_native() -> None:
    """R-EQV-08: Small improvements of different size are nearly one reward to Native, not to Factorized."""
    batch = group([-5.999, -5.99, -7.0, -7.0], bases=[-6.0], frontier=-6.0)
    near, apart = advantages("native", batch), advantages("factorized", batch)
    assert abs(near[0] - near[1]) < 0.01
    assert abs(apart[0] - apart[1]) > 0.01


@given(batch=ordinary_groups(frontier=True, compared=True), lift=st.floats(0.1, 5.0))
def test_frontier_out_of_reach(batch: GroupBatch, lift: float) -> None:
    """R-EQV-09: Below the frontier its value is erased: two frontiers out of reach give one tail signal."""
    top = np.nanmax(np.append(batch.score, -20.0)) + lift
    first = replace(batch, frontier=np.array([top]))
    second = replace(batch, frontier=np.array([top + 3.0]))
    np.testing.assert_array_equal(advantages("tail_weighted", first), advantages("tail_weighted", second))


@given(scores=st.lists(ordinary_scores, min_size=2, max_size=16))
def test_context_indicators(scores: list[float]) -> None:
    """R-EQV-10: Comparator and frontier indicators ahead of score change no order, being monotone in it."""
    row, threshold = np.array([scores]), float(np.median(scores))
    indicated = midranks((row > threshold).astype(np.float64), row)
    np.testing.assert_array_equal(indicated, midranks(row))


def test_novelty_survives() -> None:
    """R-EQV-11: Score novelty is not monotone in score, so it reaches the learner."""
    old = group([-6.5, -7.0, -8.0, FAILED], bases=[-6.0], frontier=-6.0, gap=[0.0, 0.0, 1.0, 0.0])
    new = group([-6.5, -7.0, -8.0, FAILED], bases=[-6.0], frontier=-6.0, gap=[1.0, 1.0, 1.0, 0.0])
    difference = advantages("tail_weighted", old) - advantages("tail_weighted", new)
    assert np.abs(difference).max() > 0.5


@pytest.mark.parametrize("name", ["native", "factorized", "search_exposure"])
def test_two_valid_is_all_or_nothing(name: str) -> None:
    """R-EQV-12: At G = 2 the signal is a sign: every mapping gives the better one +1/sqrt(2), up to 1e-3."""
    batch = group([-5.0, -7.0], bases=[-6.0], frontier=-6.0)
    assert advantages(name, batch).tolist() == pytest.approx([2**-0.5, -(2**-0.5)], abs=EQUIVALENT)
