"""Distinct: Factorized without credit for copies. A construction of this project, not of the paper."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given

from search_to_signal.credit import RewardMapping
from search_to_signal.credit.mappings import Factorized
from search_to_signal.credit.normalizers import NORMALIZERS, group_advantages
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import Outcome
from spec import plain
from spec.strategies import group, groups, ordinary_groups

FAILED = Outcome.RUNTIME_FAILURE


def repeats(batch: GroupBatch) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Valid completions whose code or score is that of a base, by the definition and not by the package."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.abs(batch.score[:, :, None] - batch.bases[:, None, :]) < 1e-7
    return batch.valid & (batch.matches_base_code | near.any(axis=2))


@example(batch=group([-6.0, -8.0, -6.0, FAILED], bases=[-6.0, -7.0]))
@example(batch=group([-7.0, *[-9.0] * 3, *[-5.9] * 12], bases=[-6.0, -7.0]))
@example(batch=group([-6.0, -6.0 - 1e-6, *[-6.0] * 6], bases=[-6.0]))
@given(batch=groups())
def test_no_credit_for_copies(distinct: RewardMapping, batch: GroupBatch) -> None:
    """R-DIS-01: No group, under group, dr_grpo or rank, credits a completion that repeats a base."""
    reward = distinct(batch).reward
    for name in ("group", "dr_grpo", "rank"):
        advantage = NORMALIZERS[name](reward)
        assert (advantage[repeats(batch)] <= 0.0).all(), name


@given(batch=groups())
def test_copies_are_failures(distinct: RewardMapping, batch: GroupBatch) -> None:
    """R-DIS-02: A completion that repeats a base and one that fails get -1/2, whatever the rest does."""
    assert (distinct(batch).reward[repeats(batch) | ~batch.valid] == -0.5).all()


@given(batch=ordinary_groups())
def test_factorized_elsewhere(distinct: RewardMapping, batch: GroupBatch) -> None:
    """R-DIS-03: Where nothing repeats a base, Distinct is Factorized, bit for bit."""
    assume(not repeats(batch).any())
    np.testing.assert_array_equal(distinct(batch).reward, Factorized()(batch).reward)


def test_copies_do_not_set_the_scale(distinct: RewardMapping) -> None:
    """R-DIS-04: A repeated base counts neither in the quality RMS nor in its number of completions."""
    batch = group([-9.0, -5.0, -7.0], bases=[-9.0, -6.0])
    assert distinct(batch).reward.tolist() == [[-0.5, 1.0, 0.0]]


@pytest.mark.parametrize(("distance", "copied"), [(0.99e-7, True), (1.01e-7, False)])
def test_score_edge(distinct: RewardMapping, distance: float, copied: bool) -> None:
    """R-DIS-05: A score repeats a base where it is closer than 1e-7 to it, as the host compares scores."""
    assert (distinct(group([distance, 5.0], bases=[0.0])).reward[0, 0] == -0.5) == copied


def test_code_or_score(distinct: RewardMapping) -> None:
    """R-DIS-06: Equal code is enough, and so is an equal score of other code."""
    batch = group([-5.0, -6.0, -6.5], bases=[-6.0], copies=[True, False, False])
    reward = distinct(batch).reward[0]
    assert reward[0] == reward[1] == -0.5
    assert reward[2] == 0.0


@given(batch=groups())
def test_nothing_but_copies(distinct: RewardMapping, batch: GroupBatch) -> None:
    """R-DIS-07: A group of failures and copies teaches nothing."""
    copies = replace(batch, matches_base_code=batch.valid)
    assert not group_advantages(distinct(copies).reward).any()


@given(batch=ordinary_groups())
def test_plain(distinct: RewardMapping, batch: GroupBatch) -> None:
    """R-DIS-08: Distinct is what its plain transcription says, and half the sum of its components."""
    result = distinct(batch)
    np.testing.assert_allclose(result.reward, plain.rewards("distinct", batch), rtol=0.0, atol=1e-12)
    total = 0.5 * result.components["validity"] + 0.5 * result.components["quality"]
    np.testing.assert_array_equal(total, result.reward)
