"""Factorized Validity-Quality (paper, eq. factorized-reward; supplement, Factorized Validity--Quality)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from search_to_signal.credit import RewardMapping
from search_to_signal.credit.mappings import Factorized
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import Outcome
from spec import plain
from spec.strategies import dyadics, group, groups, ordinary_groups

FAILED = Outcome.RUNTIME_FAILURE


def quality(mapping: RewardMapping, batch: GroupBatch) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """q = 2 r - v, recovered from the reward."""
    return 2.0 * mapping(batch).reward - np.where(batch.valid, 1.0, -1.0)


def eligible_rms(mapping: RewardMapping, batch: GroupBatch) -> float:
    """RMS of q over the eligible set."""
    return math.sqrt(np.mean(np.square(quality(mapping, batch)[batch.eligible])))


@given(batch=groups())
def test_failures(factorized: RewardMapping, batch: GroupBatch) -> None:
    """R-FAC-01: Every failure gets -1/2, whatever its type."""
    assert (factorized(batch).reward[~batch.valid] == -0.5).all()


@given(batch=groups(compared=False))
def test_initialization(factorized: RewardMapping, batch: GroupBatch) -> None:
    """R-FAC-02: Without a comparator a valid completion gets +1/2 (D05)."""
    assert (factorized(batch).reward[batch.valid] == 0.5).all()


@given(batch=ordinary_groups(compared=True))
def test_unit_rms(factorized: RewardMapping, batch: GroupBatch) -> None:
    """R-FAC-03: Over the eligible set q has RMS 1, or is zero throughout."""
    assume(batch.eligible.any())
    size = eligible_rms(factorized, batch)
    assert size == 0.0 or size == pytest.approx(1.0, abs=1e-12)


@given(batch=ordinary_groups(compared=True))
def test_proportional(factorized: RewardMapping, batch: GroupBatch) -> None:
    """R-FAC-04: q is proportional to f - b, with b the best base: not centred, not clipped, sign kept."""
    change = np.where(batch.eligible, batch.score - batch.best_base[:, None], 0.0)
    assume(math.sqrt(np.mean(np.square(change))) > 1e-7)
    q = quality(factorized, batch)
    np.testing.assert_allclose(q * np.abs(change).max(), change * np.abs(q).max(), rtol=0.0, atol=1e-12 * 40)
    assert np.abs(q).max() > 0.0


def test_zero_rms_edge(factorized: RewardMapping) -> None:
    """R-FAC-05: q is zero where the RMS is at most 1e-8, and full size right above (D06)."""
    assert factorized(group([1e-8, -1e-8], bases=[0.0])).reward.tolist() == [[0.5, 0.5]]
    above = math.nextafter(1e-8, 1.0)
    assert factorized(group([above, -above], bases=[0.0])).reward.tolist() == [[1.0, 0.0]]


def test_zero_rms_alternative() -> None:
    """R-FAC-06: The alternative lets any RMS but exact zero count (D06)."""
    batch = group([5e-324, -1e-300], bases=[0.0])
    assert Factorized()(batch).reward.tolist() == [[0.5, 0.5]]
    assert Factorized(zero_rms=0.0)(batch).reward[0, 1] == pytest.approx(0.5 - 0.5 * math.sqrt(2.0))


@example(batch=group([1e300, -1e300], bases=[0.0]))
@given(batch=groups(compared=True))
def test_bound(factorized: RewardMapping, batch: GroupBatch) -> None:
    """R-FAC-07: |q| is at most the root of the number of eligible completions, for scores of any size."""
    most = math.sqrt(max(int(batch.eligible.sum()), 1))
    assert (np.abs(quality(factorized, batch)) <= most * (1.0 + 1e-12)).all()


@given(batch=ordinary_groups(compared=True), power=st.integers(-8, 300))
def test_scale(factorized: RewardMapping, batch: GroupBatch, power: int) -> None:
    """R-FAC-08: A common positive factor changes nothing, unless the RMS falls to the threshold."""
    before = factorized(batch).reward
    scaled = replace(batch, score=batch.score * 2.0**power, bases=batch.bases * 2.0**power)
    change = np.where(batch.eligible, batch.score - batch.best_base[:, None], 0.0)
    assume(not change.any() or np.abs(change).max() > 1e-4)
    np.testing.assert_allclose(factorized(scaled).reward, before, rtol=0.0, atol=1e-12)


@given(batch=groups(scores=dyadics, compared=True), shift=st.integers(-(2**20), 2**20))
def test_shift(factorized: RewardMapping, batch: GroupBatch, shift: int) -> None:
    """R-FAC-09: A common shift of scores and bases changes nothing."""
    rounded = replace(batch, score=np.round(batch.score * 1024.0) / 1024.0)
    moved = replace(rounded, score=rounded.score + shift, bases=rounded.bases + shift)
    np.testing.assert_array_equal(factorized(moved).reward, factorized(rounded).reward)


@given(batch=ordinary_groups(compared=True))
def test_monotone(factorized: RewardMapping, batch: GroupBatch) -> None:
    """R-FAC-10: Among eligible completions a better score never gets less; an improvement gets over 1/2."""
    reward, score = factorized(batch).reward[batch.eligible], batch.score[batch.eligible]
    assert (np.diff(reward[np.argsort(score, kind="stable")]) >= 0.0).all()
    better = batch.eligible & (batch.score - batch.best_base[:, None] > 1e-6)
    assert (factorized(batch).reward[better] > 0.5).all()


def test_valid_below_failure(factorized: RewardMapping) -> None:
    """R-FAC-11: A valid completion can get less than a failure: one lone degradation among five equals."""
    batch = group([-7.0, -6.0, -6.0, -6.0, -6.0, FAILED], bases=[-6.0])
    result = factorized(batch).reward[0]
    assert result[0] == pytest.approx(0.5 - 0.5 * math.sqrt(5.0))
    assert result[0] < result[5] == -0.5


@example(batch=group([-5.0, -7.0, FAILED], bases=[-9.0, -6.0]), other=0)
@given(batch=groups(), other=st.integers(0, 2**32 - 1))
def test_reads_best_base_only(factorized: RewardMapping, batch: GroupBatch, other: int) -> None:
    """R-FAC-12: Frontier, archive, exposure, repetition and the worse bases do not matter."""
    noise, shape = np.random.default_rng(other), batch.outcome.shape
    changed = replace(
        batch,
        bases=batch.best_base[:, None],
        frontier=noise.normal(size=1),
        archive_gap=noise.random(shape),
        exposure=noise.random(shape),
        response=np.zeros(shape, dtype=np.int64),
    )
    np.testing.assert_array_equal(factorized(changed).reward, factorized(batch).reward)


@given(batch=ordinary_groups())
def test_plain(factorized: RewardMapping, batch: GroupBatch) -> None:
    """R-FAC-13: Factorized is what the plain transcription of the paper says."""
    expected = plain.rewards("factorized", batch)
    np.testing.assert_allclose(factorized(batch).reward, expected, rtol=0.0, atol=1e-12)


@given(batch=groups())
def test_components(factorized: RewardMapping, batch: GroupBatch) -> None:
    """R-FAC-14: The components are v and q, and the reward half their sum: one scalar, one normalization."""
    result = factorized(batch)
    validity, q = result.components["validity"], result.components["quality"]
    np.testing.assert_array_equal(validity, np.where(batch.valid, 1.0, -1.0))
    np.testing.assert_array_equal(0.5 * validity + 0.5 * q, result.reward)
