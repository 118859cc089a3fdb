"""Search-Exposure Residual (paper, eq. search-residual; supplement, Search-Exposure Residual)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from search_to_signal.base.errors import IllFormedGroupError
from search_to_signal.credit import RewardMapping
from search_to_signal.credit.mappings import SearchExposure
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import Outcome
from spec import plain
from spec.strategies import Floats, group, groups, ordinary_groups

FAILED = Outcome.RUNTIME_FAILURE


def root_mean_square(values: Floats) -> float:
    """RMS of some numbers, 0 of none."""
    return float(math.sqrt(np.mean(np.square(values)))) if values.size else 0.0


def validity(batch: GroupBatch) -> Floats:
    """a^V as the supplement writes it, from severities and +1 (D14)."""
    codes = list(Outcome)
    level = np.array([plain.SEVERITIES.get(codes[code].value, 1.0) for code in batch.outcome[0].tolist()])
    level = level - level.mean()
    size = root_mean_square(level)
    return level / (size + 1e-8) if size > 1e-8 else np.zeros_like(level)


@given(batch=groups())
def test_sum(search_exposure: RewardMapping, batch: GroupBatch) -> None:
    """R-SEARCH-01: The reward is the sum of the channels validity, quality and search."""
    result = search_exposure(batch)
    assert set(result.components) == {"validity", "quality", "search"}
    np.testing.assert_allclose(sum(result.components.values()), result.reward, rtol=0.0, atol=1e-12)


@given(batch=groups(compared=False))
def test_validity(search_exposure: RewardMapping, batch: GroupBatch) -> None:
    """R-SEARCH-02: Without eligible completions only typed validity remains, centred with RMS 1 (D14)."""
    np.testing.assert_allclose(search_exposure(batch).reward[0], validity(batch), rtol=0.0, atol=1e-9)


def test_binary_validity() -> None:
    """R-SEARCH-03: The alternative does not tell failures apart (D14)."""
    batch = group([Outcome.MISSING_CODE, Outcome.RANDOMNESS, -6.0])
    binary = SearchExposure(validity="binary")(batch).reward[0]
    assert binary[0] == binary[1]
    assert SearchExposure()(batch).reward[0, 0] < SearchExposure()(batch).reward[0, 1]


@given(batch=ordinary_groups(compared=True))
def test_quality(search_exposure: RewardMapping, batch: GroupBatch) -> None:
    """R-SEARCH-04: Quality is centred over the eligible set with RMS 1, or zero; zero outside (D15)."""
    q, eligible = search_exposure(batch).components["quality"], batch.eligible
    assert not q[~eligible].any()
    assume(q.any())
    assert q[eligible].mean() == pytest.approx(0.0, abs=1e-12)
    spread = np.std(batch.score[eligible])
    assert root_mean_square(q[eligible]) == pytest.approx(spread / (spread + 1e-8), abs=1e-7)


@given(batch=ordinary_groups(compared=True))
def test_orthogonal(search_exposure: RewardMapping, batch: GroupBatch) -> None:
    """R-SEARCH-05: The search channel is orthogonal to the centred quality direction."""
    eligible = batch.eligible[0]
    rest = search_exposure(batch).reward[0] - validity(batch)
    scores = batch.score[0][eligible]
    assume(eligible.any() and np.ptp(scores) > 1e-4)
    direction = (scores - scores.mean()) / np.std(scores)
    # All of the quality channel lies along the direction, with size 1, and nothing of the search channel.
    assert float(rest[eligible] @ direction) / len(direction) == pytest.approx(1.0, abs=1e-3)


@given(batch=groups(compared=True))
def test_bounded(search_exposure: RewardMapping, batch: GroupBatch) -> None:
    """R-SEARCH-06: The RMS of the search channel is below 1/2, for scores of any size; zero outside (D15)."""
    search = search_exposure(batch).components["search"]
    assert not search[~batch.eligible].any()
    assert root_mean_square(search[batch.eligible]) <= 0.5 * (1.0 + 1e-12)


@given(batch=ordinary_groups(compared=True), exposure=st.floats(0.0, 1.0))
@example(batch=group([1e12 + 1.0, 1e12 + 4.0, 1e12 + 8.0, FAILED], bases=[5.0]), exposure=0.7)
def test_equal_exposure(search_exposure: RewardMapping, batch: GroupBatch, exposure: float) -> None:
    """R-SEARCH-07: Equal exposures tell nothing beyond quality: the search channel vanishes."""
    level = np.where(batch.valid, exposure, np.nan)
    search = search_exposure(replace(batch, exposure=level)).components["search"]
    assert np.abs(search).max() <= 1e-8


@given(
    scores=st.lists(st.floats(-8.0, -4.0), min_size=2, max_size=2).filter(
        lambda pair: abs(pair[0] - pair[1]) > 0.1
    ),
    exposures=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2),
)
def test_two_eligible(search_exposure: RewardMapping, scores: list[float], exposures: list[float]) -> None:
    """R-SEARCH-08: Two eligible completions have one centred direction, so nothing is left for exposure."""
    batch = group([*scores, FAILED], bases=[-6.0], exposure=[*exposures, 0.0])
    assert np.abs(search_exposure(batch).components["search"]).max() <= 1e-6


@given(
    batch=groups(failures=False, size=st.just(1), compared=True), failure=st.sampled_from(list(Outcome)[1:])
)
def test_one_eligible(search_exposure: RewardMapping, batch: GroupBatch, failure: Outcome) -> None:
    """R-SEARCH-09: A lone eligible completion gets validity alone: its centred scales are zero."""
    alone = group([batch.score[0, 0], failure, FAILED], bases=[batch.best_base[0]])
    np.testing.assert_allclose(search_exposure(alone).reward[0], validity(alone), rtol=0.0, atol=1e-9)


def test_vanishing_quality(search_exposure: RewardMapping) -> None:
    """R-SEARCH-10: Quality is zero where the centred RMS is at most 1e-8 in score units (D06)."""
    edge = search_exposure(group([1e-8, -1e-8], bases=[0.0])).components["quality"]
    assert edge.tolist() == [[0.0, 0.0]]
    above = search_exposure(group([1.1e-8, -1.1e-8], bases=[0.0])).components["quality"][0]
    assert above.tolist() == pytest.approx([1.1 / 2.1, -1.1 / 2.1])


def test_stabilizer_of_the_residual(search_exposure: RewardMapping) -> None:
    """R-SEARCH-19: A lone residual of RMS 1.1e-8 gives 1.1 / (2 x 1.1 + 1), one of 0.9e-8 nothing."""

    def channel(residual: float) -> list[float]:
        batch = group([-7.0, -7.0], bases=[-6.0], exposure=[0.5 - residual, 0.5 + residual])
        return search_exposure(batch).components["search"][0].tolist()

    assert channel(1.1e-8) == pytest.approx([1.1 / 3.2, -1.1 / 3.2], rel=1e-6)
    assert channel(0.9e-8) == [0.0, 0.0]


def test_hand(search_exposure: RewardMapping) -> None:
    """R-SEARCH-11: Delta (1, 0, -1), rho (1, 0, 0): s = (1, -2, 1) / 6, a^S = s / (RMS(Delta) + 2 RMS(s))."""
    batch = group([-5.0, -6.0, -7.0], bases=[-6.0], exposure=[1.0, 0.0, 0.0])
    scale = math.sqrt(2.0 / 3.0)
    search = np.array([1.0, -2.0, 1.0]) / 6.0 / (scale + 2.0 * math.sqrt(1.0 / 18.0))
    expected = np.array([1.0, 0.0, -1.0]) / scale + search
    np.testing.assert_allclose(search_exposure(batch).reward[0], expected, rtol=0.0, atol=1e-7)


@given(batch=ordinary_groups(compared=True), power=st.integers(0, 200))
def test_scale(search_exposure: RewardMapping, batch: GroupBatch, power: int) -> None:
    """R-SEARCH-12: Enlarging all scores together changes nothing but the stabilizer's share."""
    scores = batch.score[batch.eligible]
    assume(scores.size and np.ptp(scores) > 1e-2)
    large = replace(batch, score=batch.score * 2.0**power, bases=batch.bases * 2.0**power)
    np.testing.assert_allclose(
        search_exposure(large).reward, search_exposure(batch).reward, rtol=0.0, atol=1e-4
    )


@st.composite
def equal_scores(draw: st.DrawFn) -> GroupBatch:
    """A group whose scores are all equal and not their base's, and whose exposures hardly differ."""
    size, gain = draw(st.integers(2, 8)), draw(st.floats(0.01, 1.0))
    steps = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size).filter(lambda s: len(set(s)) > 1))
    return group([-6.0] * size, bases=[-6.0 + gain], exposure=[0.5 + 1e-5 * step for step in steps])


def residual(batch: GroupBatch) -> Floats:
    """s of the supplement over the eligible completions of one group, before any rescaling."""
    chosen = batch.eligible[0]
    gain = batch.score[0][chosen] - batch.best_base[0]
    direction = gain - gain.mean() if np.ptp(gain) > 0.0 else np.zeros_like(gain)
    size = root_mean_square(direction)
    quality = direction / (size + 1e-8) if size > 1e-8 else np.zeros_like(direction)
    product = batch.exposure[0][chosen] * gain
    product = product - product.mean()
    left: Floats = product - (product @ quality) / (quality @ quality + 1e-8) * quality
    return left


@given(batch=equal_scores())
def test_tiny_residual(search_exposure: RewardMapping, batch: GroupBatch) -> None:
    """R-SEARCH-16: Among equal scores a residual under 1e-4 fills the channel: RMS 0.4 and more (D27)."""
    left = root_mean_square(residual(batch))
    assume(left > 1e-7)
    assert left < 1e-4
    assert root_mean_square(search_exposure(batch).components["search"][0]) > 0.4


@given(batch=st.one_of(ordinary_groups(compared=True), equal_scores()))
def test_tiny_residual_stays_tiny(batch: GroupBatch) -> None:
    """R-SEARCH-17: With the plain scale RMS(a^S) <= RMS(s) / RMS(Delta), and never more than chosen (D27)."""
    chosen, other = SearchExposure()(batch), SearchExposure(scale="plain")(batch)
    eligible = batch.eligible[0]
    assume(eligible.any())
    size = root_mean_square(other.components["search"][0][eligible])
    change = root_mean_square(batch.score[0][eligible] - batch.best_base[0])
    assert size * change <= root_mean_square(residual(batch)) * (1.0 + 1e-6) + 1e-9
    assert size <= root_mean_square(chosen.components["search"][0][eligible]) * (1.0 + 1e-12)
    for name in ("validity", "quality"):
        np.testing.assert_array_equal(other.components[name], chosen.components[name])


@given(batch=st.one_of(ordinary_groups(compared=True), equal_scores()))
def test_residual_beside_no_quality(batch: GroupBatch) -> None:
    """R-SEARCH-18: The second alternative is the choice, but zero where the quality channel is zero (D27)."""
    chosen, other = SearchExposure()(batch), SearchExposure(scale="centred_or_zero")(batch)
    kept = chosen.components["search"] * chosen.components["quality"].any(axis=1, keepdims=True)
    np.testing.assert_array_equal(other.components["search"], kept)


@given(batch=groups(), other=st.integers(0, 2**32 - 1))
def test_reads_exposure(search_exposure: RewardMapping, batch: GroupBatch, other: int) -> None:
    """R-SEARCH-13: Frontier, archive and repetition do not matter."""
    noise, shape = np.random.default_rng(other), batch.outcome.shape
    changed = replace(
        batch,
        frontier=noise.normal(size=1),
        archive_gap=noise.random(shape),
        response=np.zeros(shape, dtype=np.int64),
    )
    np.testing.assert_array_equal(search_exposure(changed).reward, search_exposure(batch).reward)


def test_missing_exposure(search_exposure: RewardMapping) -> None:
    """R-SEARCH-14: An eligible completion without exposure is refused by name; others need none."""
    with pytest.raises(IllFormedGroupError, match="exposure"):
        search_exposure(group([-6.0], bases=[-6.0], exposure=[np.nan]))
    search_exposure(group([-6.0], exposure=[np.nan]))


@given(batch=ordinary_groups())
def test_plain(search_exposure: RewardMapping, batch: GroupBatch) -> None:
    """R-SEARCH-15: The residual is what the plain transcription of the supplement says."""
    expected = plain.rewards("search_exposure", batch)
    np.testing.assert_allclose(search_exposure(batch).reward, expected, rtol=0.0, atol=1e-6)
