"""The audited alternatives to the paper's normalizer, each tied to it by a law."""

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from search_to_signal.base.errors import ConfigError, IllFormedGroupError, MappingError
from search_to_signal.base.numerics import Floats
from search_to_signal.credit.normalizers import (
    NORMALIZERS,
    BatchScaled,
    Gdpo,
    advantages,
    dr_grpo,
    entropic,
    get_normalizer,
    group_advantages,
    rank,
    rloo,
    trl_float32,
)
from spec.strategies import reward_rows

every = pytest.mark.parametrize("name", sorted(NORMALIZERS))


@every
@given(rewards=reward_rows(st.floats(-1e30, 1e30)))
def test_totality(name: str, rewards: Floats) -> None:
    """R-ALT-01: Every registered normalizer gives finite advantages of the same shape."""
    result = NORMALIZERS[name](rewards)
    assert result.shape == rewards.shape
    assert np.isfinite(result).all()


@every
@given(rewards=reward_rows(), data=st.data())
def test_permutation(name: str, rewards: Floats, data: st.DataObject) -> None:
    """R-ALT-02: Every registered normalizer commutes with permutations of the group."""
    order = np.array(data.draw(st.permutations(range(rewards.shape[1]))))
    expected = NORMALIZERS[name](rewards)[:, order]
    tolerance = 1e-2 if name == "trl_float32" else 1e-9  # Float32 sums depend on their order.
    np.testing.assert_allclose(NORMALIZERS[name](rewards[:, order]), expected, rtol=1e-6, atol=tolerance)


@every
@given(rewards=reward_rows())
def test_order(name: str, rewards: Floats) -> None:
    """R-ALT-03: No registered normalizer gives a higher reward a lower advantage."""
    result = NORMALIZERS[name](rewards)[0][np.argsort(rewards[0], kind="stable")]
    assert (np.diff(result) >= 0.0).all()


@pytest.mark.parametrize("name", sorted(set(NORMALIZERS) - {"trl_float32"}))
@given(value=st.floats(-1e6, 1e6), size=st.integers(1, 16))
def test_flat(name: str, value: float, size: int) -> None:
    """R-ALT-04: Every registered normalizer but the float32 one gives flat groups exact zeros."""
    assert not NORMALIZERS[name](np.full((1, size), value)).any()


@given(rewards=reward_rows())
def test_dr_grpo(rewards: Floats) -> None:
    """R-ALT-05: Dr. GRPO is the paper's advantage times (s + 1e-4): centred, not scaled."""
    scale = rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4
    np.testing.assert_allclose(dr_grpo(rewards), group_advantages(rewards) * scale, atol=1e-12)


@given(rewards=reward_rows())
def test_rloo(rewards: Floats) -> None:
    """R-ALT-06: RLOO subtracts the mean of the others."""
    others = (rewards.sum(axis=1, keepdims=True) - rewards) / (rewards.shape[1] - 1)
    np.testing.assert_allclose(rloo(rewards), rewards - others, atol=1e-12)


@given(rewards=reward_rows())
def test_batch_of_one(rewards: Floats) -> None:
    """R-ALT-07: Batch scaling over batches of one group is the paper's normalizer."""
    stack = np.concatenate([rewards, rewards**2])
    np.testing.assert_allclose(BatchScaled(groups=1)(stack), group_advantages(stack), rtol=1e-9, atol=1e-9)


def test_batch_shares_a_scale() -> None:
    """R-ALT-08: Batch scaling keeps the ratio of spreads between groups of a batch."""
    result = BatchScaled(groups=2)(np.array([[0.0, 1.0], [0.0, 3.0]]))
    assert result[1, 1] == pytest.approx(3.0 * result[0, 1], rel=1e-12)


@given(rewards=reward_rows())
def test_rank(rewards: Floats) -> None:
    """R-ALT-09: The rank normalizer sees nothing but order and ties."""
    np.testing.assert_array_equal(rank(rewards), rank(np.arctan(rewards) * 7.0 + rewards**3))


@given(first=reward_rows(), factor=st.floats(0.5, 2.0))
def test_gdpo(first: Floats, factor: float) -> None:
    """R-ALT-10: GDPO normalizes each component, then adds them with weights."""
    second = np.roll(first, 1, axis=1)
    expected = group_advantages(first) + factor * group_advantages(second)
    result = advantages(Gdpo({"b": factor}), first + second, {"a": first, "b": second})
    np.testing.assert_allclose(result, expected, atol=1e-12)


def test_gdpo_differs_from_joint() -> None:
    """R-ALT-11: Normalizing before adding is not normalizing the sum."""
    a, b = np.array([[0.0, 0.0, 0.0, 1.0]]), np.array([[0.0, 9.0, 3.0, 1.0]])
    assert np.abs(Gdpo().of_components({"a": a, "b": b}) - group_advantages(a + b)).max() > 0.5


@given(rewards=reward_rows(least=3))
def test_entropic(rewards: Floats) -> None:
    """R-ALT-12: The entropic rule is e_i over the mean of the other e_j, less one, at KL = log 2."""
    size, result = rewards.shape[1], entropic(rewards)[0]
    ties = int((rewards == rewards.max()).sum())
    if 2 * ties >= size:
        return
    # A = w / ((W - w) / (G - 1)) - 1 gives w / W = (A + 1) / (A + G).
    weights = (result + 1.0) / (result + size)
    divergence = sum(w * math.log(w * size) for w in weights if w > 0.0)
    assert weights.sum() == pytest.approx(1.0, abs=1e-8)
    assert divergence == pytest.approx(math.log(2.0), abs=1e-7)


def test_entropic_needs_no_infinity() -> None:
    """R-ALT-13: Where log 2 is out of reach the lone maximum of the entropic rule is bounded by 1e12."""
    result = entropic(np.array([[0.0, 1.0]]))
    assert result[0, 0] == pytest.approx(-1.0)
    assert 1e11 < result[0, 1] <= 1e12


@given(rewards=reward_rows(st.floats(-5.0, 5.0)).filter(lambda row: row.shape[1] <= 4))
@example(rewards=np.array([[3.265625, 3.25390625, 3.25451990269492]]))
def test_trl_bits(trl: Callable[[Floats], Floats], rewards: Floats) -> None:
    """R-ALT-14: The float32 option has TRL 0.15.1's bits up to G = 4, where every order of summing agrees."""
    np.testing.assert_array_equal(trl_float32(rewards), trl(rewards))


def test_float32_residue() -> None:
    """R-ALT-15: In float32 some flat groups of 8 keep a residue, and none of 4 does (D16)."""
    values = np.random.default_rng(5).uniform(-1.0, 2.0, size=(2000, 1))
    assert not trl_float32(np.repeat(values, 4, axis=1)).any()
    share = np.mean(trl_float32(np.repeat(values, 8, axis=1)).any(axis=1))
    assert 0.3 < share < 0.6


def test_trl_expression() -> None:
    """R-ALT-16: The expression that parity is tested against is the one in the installed TRL."""
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        pytest.skip("TRL is not installed")
    source = (Path(spec.origin).parent / "trainer" / "grpo_trainer.py").read_text(encoding="utf-8")
    assert "rewards.view(-1, self.num_generations).mean(dim=1)" in source
    assert "rewards.view(-1, self.num_generations).std(dim=1)" in source
    assert "(rewards - mean_grouped_rewards) / (std_grouped_rewards + 1e-4)" in source


def test_registry() -> None:
    """R-ALT-17: Normalizers are found by name and by import path; an unknown name lists the known ones."""
    assert get_normalizer("group") is group_advantages
    assert get_normalizer("search_to_signal.credit.normalizers:rloo") is rloo
    with pytest.raises(ConfigError, match="dr_grpo, entropic, gdpo, group"):
        get_normalizer("nonsense")


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("number", [1e37, -1e37])
def test_float32_range(place: int, number: float) -> None:
    """R-ALT-18: One reward beyond what float32 sums can hold is enough for the float32 option to refuse."""
    rewards = np.zeros((2, 3))
    rewards[1, place] = number
    with pytest.raises(IllFormedGroupError, match="1e36"):
        trl_float32(rewards)


def test_batch_default() -> None:
    """R-ALT-19: The registered batch normalizer shares a scale among eight groups, in order."""
    rewards = np.random.default_rng(3).normal(size=(17, 4)) * np.arange(1.0, 18.0)[:, None]
    parts = [BatchScaled(groups=99)(rewards[start : start + 8]) for start in (0, 8, 16)]
    np.testing.assert_array_equal(NORMALIZERS["batch"](rewards), np.concatenate(parts))


def test_batch_of_large_rewards() -> None:
    """R-ALT-20: Where squares would overflow, batch scaling forgets the unit as elsewhere."""
    rewards = np.array([[0.0, 1.0, 5.0], [0.0, 3.0, 3.0]])
    plain = (rewards - rewards.mean(axis=1, keepdims=True)) / rewards.std(ddof=1)
    np.testing.assert_allclose(BatchScaled(groups=2)(rewards * 1e200), plain, rtol=1e-12)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_none(number: float) -> None:
    """R-ALT-21: A normalizer that is not finite in a single place is refused."""

    def broken(rewards: Floats) -> Floats:
        result = group_advantages(rewards)
        result[0, -1] = number
        return result

    rewards = np.array([[0.0, 1.0], [2.0, 3.0]])
    with pytest.raises(MappingError, match="normalizer broken returned NaN or infinite"):
        advantages(broken, rewards, {})
