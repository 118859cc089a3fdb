"""Native CALM (paper, Native CALM; supplement, Native CALM branch semantics)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_to_signal.credit import RewardMapping
from search_to_signal.credit.mappings import Native
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import Outcome
from spec import plain
from spec.strategies import LARGEST, any_scores, group, groups, ordinary_groups, ordinary_scores

positive = st.floats(1e-3, 1e3)
COPY = -0.6000000000000001
"""Minus the sum of 1/5 and 2/5 as the host adds them (HOST.md, point 23)."""


def reward(mapping: RewardMapping, score: float | Outcome, *bases: float) -> float:
    """The reward of one completion against these bases."""
    return float(mapping(group([score], bases=bases)).reward[0, 0])


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Outcome.MISSING_RATIONALE, -1.0),
        (Outcome.MISSING_CODE, -0.95),
        (Outcome.MISSING_FUNCTION, -0.90),
        (Outcome.RUNTIME_FAILURE, -0.85),
        (Outcome.RANDOMNESS, -0.75),
    ],
)
def test_severities(native: RewardMapping, failure: Outcome, expected: float) -> None:
    """R-NAT-01: Each typed failure has its severity, with or without a comparator (D04)."""
    assert reward(native, failure, -6.0) == expected
    assert reward(native, failure) == expected


@given(score=any_scores)
def test_initialization(native: RewardMapping, score: float) -> None:
    """R-NAT-02: A valid completion without a comparator gets zero (D05)."""
    assert reward(native, score) == 0.0


@given(base=positive, relative=st.floats(1e-6, 0.9))
def test_improvement(native: RewardMapping, base: float, relative: float) -> None:
    """R-NAT-03: An improvement gets 1 + delta, with delta relative to the smaller magnitude (D01)."""
    assert reward(native, base * (1.0 + relative), base) == pytest.approx(1.0 + relative, abs=1e-9)
    assert reward(native, -base, -base * (1.0 + relative)) == pytest.approx(1.0 + relative, abs=1e-9)


@given(base=any_scores)
def test_equality(native: RewardMapping, base: float) -> None:
    """R-NAT-04: A score equal to the best base gets zero, also at zero (D01, D03)."""
    assert reward(native, base, base) == 0.0


@given(base=positive, relative=st.floats(1e-3, 0.9))
def test_degradation(native: RewardMapping, base: float, relative: float) -> None:
    """R-NAT-05: A degradation that is no copy gets -3 delta / 8."""
    assert reward(native, base, base * (1.0 + relative)) == pytest.approx(-0.375 * relative, abs=1e-9)
    assert reward(native, -base * (1.0 + relative), -base) == pytest.approx(-0.375 * relative, abs=1e-9)


@given(best=ordinary_scores, fall=st.floats(1e-3, 3.0), offset=st.sampled_from([0.0, 5e-8, -5e-8, 9.9e-8]))
def test_copy_of_a_worse_base(native: RewardMapping, best: float, fall: float, offset: float) -> None:
    """R-NAT-06: A degradation within 1e-7 of any base is a copy and gets -(1/5 + 2/5), to the bit (D02)."""
    assert reward(native, best - fall + offset, best - fall, best) == COPY


@given(best=ordinary_scores, other=st.floats(1e-3, 3.0))
def test_copy_of_the_best_base(native: RewardMapping, best: float, other: float) -> None:
    """R-NAT-07: A copy of the best base gets zero, not -3/5 (D02)."""
    assert reward(native, best, best - other, best) == 0.0


def test_copy_edge(native: RewardMapping) -> None:
    """R-NAT-08: The copy branch ends where the difference reaches 1e-7, from either side (D02)."""
    assert reward(native, math.nextafter(1e-7, 0.0), 0.0, 1.0) == COPY
    assert reward(native, 1e-7, 0.0, 1.0) == -0.375
    assert reward(native, -1e-7, 0.0, 1.0) == -0.375
    assert reward(native, -5e-8, 0.0) == COPY


def test_smallest_delta(native: RewardMapping) -> None:
    """R-NAT-09: delta is at least 1e-10, so the smallest improvement gets 1 + 1e-10."""
    assert reward(native, math.nextafter(1.0, 2.0), 1.0) == 1.0 + 1e-10
    assert reward(native, 1e6 * (1.0 - 1e-12), 1e6) == -0.375 * 1e-10


def test_largest_delta(native: RewardMapping) -> None:
    """R-NAT-10: delta is at most 1: no improvement gets more than 2, no degradation less than -3/8."""
    assert reward(native, -1.0, -2.0) == 2.0
    assert reward(native, -1.0, -50.0) == 2.0
    assert reward(native, -50.0, -1.0) == -0.375
    assert reward(native, 1.0, -1.0) == 2.0
    assert reward(native, LARGEST, -LARGEST) == 2.0
    assert reward(native, -LARGEST, LARGEST) == -0.375


@given(score=any_scores.filter(lambda score: abs(score) >= 1e-6))
def test_zero_denominator(native: RewardMapping, score: float) -> None:
    """R-NAT-11: Where score or base is zero and they differ, delta is 1 (D03)."""
    assert reward(native, score, 0.0) == (2.0 if score > 0.0 else -0.375)
    assert reward(native, 0.0, score) == (2.0 if score < 0.0 else -0.375)


@given(score=ordinary_scores, bases=st.lists(ordinary_scores, min_size=2, max_size=4))
def test_best_base(native: RewardMapping, score: float, bases: list[float]) -> None:
    """R-NAT-12: The comparator is the best base: its sign says whether a completion improves."""
    result = reward(native, score, *bases)
    assert (result > 0.0) == (score > max(bases))
    assert (result < 0.0) == (score < max(bases))


@given(batch=groups())
def test_failures_lowest(native: RewardMapping, batch: GroupBatch) -> None:
    """R-NAT-13: Every failure is below every valid completion."""
    result = native(batch).reward
    assert (result[~batch.valid] <= -0.75).all()
    assert (result[batch.valid] >= COPY).all()


@given(batch=ordinary_groups(compared=True), power=st.integers(1, 20))
def test_scale(native: RewardMapping, batch: GroupBatch, power: int) -> None:
    """R-NAT-14: A common positive factor changes nothing where no copy is involved."""
    scaled = replace(batch, score=batch.score * 2.0**power, bases=batch.bases * 2.0**power)
    before, after = native(batch).reward, native(scaled).reward
    plain_branch = (before != COPY) & (after != COPY)
    np.testing.assert_array_equal(after[plain_branch], before[plain_branch])


def test_no_shift_law(native: RewardMapping) -> None:
    """R-NAT-15: A common shift does change rewards: delta is relative, so Native depends on the origin."""
    assert reward(native, -5.0, -6.0) == 1.2
    assert reward(native, -1.0, -2.0) == 2.0


def test_not_monotone(native: RewardMapping) -> None:
    """R-NAT-16: A better score can get less: a copy just below the base is below any plain degradation."""
    assert reward(native, -6.0 - 5e-8, -6.0) < reward(native, -7.0, -6.0)


@given(batch=groups(), other=st.integers(0, 2**32 - 1))
def test_reads_bases_only(native: RewardMapping, batch: GroupBatch, other: int) -> None:
    """R-NAT-17: Frontier, archive, exposure and repetition do not matter."""
    noise, shape = np.random.default_rng(other), batch.outcome.shape
    changed = replace(
        batch,
        frontier=noise.normal(size=1),
        archive_gap=noise.random(shape),
        exposure=noise.random(shape),
        response=np.zeros(shape, dtype=np.int64),
    )
    np.testing.assert_array_equal(native(changed).reward, native(batch).reward)


@given(batch=ordinary_groups())
def test_plain(native: RewardMapping, batch: GroupBatch) -> None:
    """R-NAT-18: Native is what the plain transcription of the paper says, branch by branch."""
    np.testing.assert_allclose(native(batch).reward, plain.rewards("native", batch), rtol=0.0, atol=1e-12)


@given(batch=groups())
def test_components(native: RewardMapping, batch: GroupBatch) -> None:
    """R-NAT-19: The components are the failure severity and the comparison, and the reward their sum."""
    result = native(batch)
    assert set(result.components) == {"failure", "comparison"}
    np.testing.assert_array_equal(sum(result.components.values()), result.reward)


def test_code_identity() -> None:
    """R-NAT-20: The alternative tells a copy by its canonical code instead of its score (D02)."""
    batch = group([-7.0, -7.0, -6.0], bases=[-7.0, -6.0], copies=[True, False, True])
    assert Native(copies="code")(batch).reward[0].tolist() == pytest.approx([COPY, -0.375 / 6.0, 0.0])
