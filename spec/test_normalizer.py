"""The group normalizer: what survives of a reward (paper, eq. grpo-normalization; D16)."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_to_signal.base.errors import IllFormedGroupError
from search_to_signal.base.numerics import Floats
from search_to_signal.credit.normalizers import STABILIZER, Normalizer
from spec.strategies import dyadics, reward_rows

ANY = st.floats(allow_nan=False, allow_infinity=False)


def exact(rewards: list[float]) -> list[float]:
    """(r - mean) / (s + 1e-4) in rational and fifty-digit decimal arithmetic."""
    values = [Fraction(value) for value in rewards]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    with localcontext() as context:
        context.prec = 50
        scale = (Decimal(variance.numerator) / Decimal(variance.denominator)).sqrt() + Decimal("1e-4")
        parts = [value - mean for value in values]
        return [float(Decimal(part.numerator) / Decimal(part.denominator) / scale) for part in parts]


@given(rewards=reward_rows())
def test_zero_sum(normalizer: Normalizer, rewards: Floats) -> None:
    """R-NRM-01: The advantages of a group sum to zero."""
    assert abs(normalizer(rewards).sum()) <= 1e-9


@given(rewards=reward_rows(dyadics), shift=st.integers(-(2**40), 2**40))
def test_shift(normalizer: Normalizer, rewards: Floats, shift: int) -> None:
    """R-NRM-02: An offset shared by the group is removed exactly, bit for bit where adding it is exact."""
    np.testing.assert_array_equal(normalizer(rewards + float(shift)), normalizer(rewards))


@given(rewards=reward_rows(), log_scale=st.floats(-3.0, 0.0), log_factor=st.floats(-1.0, 1.0))
def test_rescaling_bound(
    normalizer: Normalizer, rewards: Floats, log_scale: float, log_factor: float
) -> None:
    """R-NRM-03: Rescaling by a > 0 moves A by at most |d| |a - 1| e / ((a s + e) (s + e)), e = 1e-4."""
    rewards, factor = rewards * 10.0**log_scale, 10.0**log_factor
    moved = np.abs(normalizer(factor * rewards) - normalizer(rewards))
    assert (moved <= np.abs(rescaling(rewards, factor)) + 1e-10).all()


@given(rewards=reward_rows(), log_scale=st.floats(-3.0, 0.0), log_factor=st.floats(-1.0, 1.0))
def test_rescaling_is_tight(
    normalizer: Normalizer, rewards: Floats, log_scale: float, log_factor: float
) -> None:
    """R-NRM-04: The rescaling bound is attained: A moves by d (a - 1) e / ((a s + e) (s + e)) itself."""
    rewards, factor = rewards * 10.0**log_scale, 10.0**log_factor
    moved = normalizer(factor * rewards) - normalizer(rewards)
    np.testing.assert_allclose(moved, rescaling(rewards, factor), rtol=0.0, atol=1e-10)


def rescaling(rewards: Floats, factor: float) -> Floats:
    """N(a r) - N(r) with d = r - mean: d a / (a s + e) - d / (s + e), over a common denominator."""
    s = rewards.std(axis=1, ddof=1, keepdims=True)
    d = rewards - rewards.mean(axis=1, keepdims=True)
    result: Floats = d * (factor - 1.0) * 1e-4 / ((factor * s + 1e-4) * (s + 1e-4))
    return result


@given(rewards=reward_rows(), data=st.data())
def test_permutation(normalizer: Normalizer, rewards: Floats, data: st.DataObject) -> None:
    """R-NRM-05: Permuting a group permutes its advantages."""
    order = np.array(data.draw(st.permutations(range(rewards.shape[1]))))
    np.testing.assert_allclose(normalizer(rewards[:, order]), normalizer(rewards)[:, order], atol=1e-12)


@given(rewards=reward_rows(ANY))
def test_bound(normalizer: Normalizer, rewards: Floats) -> None:
    """R-NRM-06: |A| <= (G - 1) / sqrt(G), for rewards of any size."""
    size = rewards.shape[1]
    assert (np.abs(normalizer(rewards)) <= (size - 1) / math.sqrt(size) * (1.0 + 1e-12)).all()


@given(size=st.integers(2, 16), log_size=st.floats(-2.0, 6.0))
def test_bound_is_approached(normalizer: Normalizer, size: int, log_size: float) -> None:
    """R-NRM-07: A lone winner by h gets h (G - 1) / (h sqrt(G) + G e), next to the bound."""
    height = 10.0**log_size
    rewards = np.zeros((1, size))
    rewards[0, 0] = height
    expected = height * (size - 1) / (height * math.sqrt(size) + size * 1e-4)
    assert normalizer(rewards)[0, 0] == pytest.approx(expected, rel=1e-12)


@given(value=ANY, size=st.integers(1, 16))
def test_flat(normalizer: Normalizer, value: float, size: int) -> None:
    """R-NRM-08: A group of equal rewards gets exact zeros, whatever the value (D16)."""
    assert not normalizer(np.full((1, size), value)).any()


@given(value=ANY)
def test_no_peer(normalizer: Normalizer, value: float) -> None:
    """R-NRM-09: A group of one has no peer and gets zero (D16)."""
    assert normalizer(np.array([[value]])).tolist() == [[0.0]]


@given(
    levels=st.lists(st.integers(-8, 8), min_size=2, max_size=16),
    magnitude=st.integers(-40, 40),
    sign=st.sampled_from([-1.0, 1.0]),
    ulps=st.integers(0, 30),
)
def test_near_flat(normalizer: Normalizer, levels: list[int], magnitude: int, sign: float, ulps: int) -> None:
    """R-NRM-10: Near-flat groups from 1e-12 to 1e12 follow the formula as evaluated in fifty digits (D16)."""
    offset = sign * 2.0**magnitude
    step = float(np.spacing(abs(offset))) * 2.0**ulps
    rewards = [offset + level * step for level in levels]
    np.testing.assert_allclose(normalizer(np.array([rewards]))[0], exact(rewards), rtol=1e-9, atol=1e-13)


@given(rewards=reward_rows())
def test_formula(normalizer: Normalizer, rewards: Floats) -> None:
    """R-NRM-11: A is (r - mean) / (s + 1e-4) with the sample deviation, stabilizer added outside the root."""
    np.testing.assert_allclose(normalizer(rewards)[0], exact(rewards[0].tolist()), rtol=1e-9, atol=1e-13)


@given(rewards=reward_rows())
def test_order(normalizer: Normalizer, rewards: Floats) -> None:
    """R-NRM-12: A higher reward gets a higher advantage, an equal reward an equal one."""
    row, result = rewards[0], normalizer(rewards)[0]
    np.testing.assert_array_equal(row[:, None] < row[None, :], result[:, None] < result[None, :])


@given(rewards=reward_rows(ANY))
def test_totality(normalizer: Normalizer, rewards: Floats) -> None:
    """R-NRM-13: Any finite rewards give finite advantages of the same shape."""
    result = normalizer(rewards)
    assert result.shape == rewards.shape
    assert np.isfinite(result).all()


@given(rewards=reward_rows(), other=st.integers(0, 2**32 - 1))
def test_independence(normalizer: Normalizer, rewards: Floats, other: int) -> None:
    """R-NRM-14: A group's advantages do not depend on the other groups of the batch."""
    noise = np.random.default_rng(other).normal(size=(3, rewards.shape[1]))
    together = normalizer(np.concatenate([noise, rewards]))
    np.testing.assert_allclose(together[3:], normalizer(rewards), atol=1e-12)


@pytest.mark.parametrize("rewards", [[[0.0, np.nan]], [[np.inf, 0.0]], [0.0, 1.0], [[]]])
def test_ill_formed(normalizer: Normalizer, rewards: list[list[float]]) -> None:
    """R-NRM-15: Rewards that are not (N, G) finite numbers with G >= 1 are refused."""
    with pytest.raises(IllFormedGroupError):
        normalizer(np.array(rewards))


@given(rewards=reward_rows(st.floats(-5.0, 5.0)))
def test_float32_parity(normalizer: Normalizer, trl: Callable[[Floats], Floats], rewards: Floats) -> None:
    """R-NRM-16: The advantages are those of TRL 0.15.1 up to float32 rounding of rewards and mean."""
    single = rewards.astype(np.float32).astype(np.float64)
    size, deviation = single.shape[1], single.std(axis=1, ddof=1, keepdims=True)
    # Each of G additions, the division and the subtraction rounds by at most half an ulp of G max |r|.
    rounding = (size + 2) * np.abs(single).max() * np.finfo(np.float32).eps
    bound = rounding / (deviation + STABILIZER) + 8 * np.finfo(np.float32).eps * size
    assert (np.abs(normalizer(single) - trl(single)) <= bound).all()
