"""Groups per second of every mapping and normalizer, beside plain Python in the same run.

    python -m pytest tests/benchmarks/rewards_benchmark.py -s --benchmark-timer=time.process_time

One core; each round handles a batch of 4,096 groups (32 for plain Python). The printed rates are of the
median round; the process timer leaves out what others take of a shared machine. The name keeps the file
out of an ordinary test run.
"""

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from spec import plain

from search_to_signal.credit import MAPPINGS
from search_to_signal.credit.normalizers import NORMALIZERS, advantages
from search_to_signal.records.groups import GroupBatch

GROUPS, PLAIN_GROUPS = 4096, 32
sizes = pytest.mark.parametrize("size", [4, 16])


def batch(number: int, size: int) -> GroupBatch:
    """Random groups: two thirds valid, scores near an archive of copies, some repeated responses."""
    stream = np.random.default_rng(size)
    outcome = np.where(stream.random((number, size)) < 2 / 3, 0, stream.integers(1, 6, (number, size)))
    valid, shape = outcome == 0, (number, size)
    archive = np.round(-6.0 - stream.random((number, 4)), 3)
    near = np.take_along_axis(archive, stream.integers(0, 4, shape), axis=1)
    score = np.where(stream.random(shape) < 0.3, near, np.round(-6.0 - stream.random(shape), 3))
    gap = np.abs(score[:, :, None] - archive[:, None, :]).min(axis=2)
    return GroupBatch(
        outcome=outcome.astype(np.int8),
        score=np.where(valid, score, np.nan),
        bases=archive[:, :2].copy(),
        frontier=archive.max(axis=1),
        archive_gap=np.where(valid, gap, np.nan),
        exposure=np.where(valid, stream.random(shape), np.nan),
        response=stream.integers(0, 2 * size, shape),
        matches_base_code=np.zeros(shape, dtype=np.bool_),
    )


def note(benchmark: BenchmarkFixture, groups: int) -> None:
    """Groups per second by the median round."""
    if benchmark.stats is not None:
        rate = groups / benchmark.stats.stats.median
        benchmark.extra_info["groups_per_second"] = round(rate)
        print(f"\n{benchmark.name}: {rate:,.0f} groups/s")


@sizes
@pytest.mark.parametrize("name", list(MAPPINGS))
def test_mapping(benchmark: BenchmarkFixture, name: str, size: int) -> None:
    """A mapping over arrays."""
    groups = batch(GROUPS, size)
    benchmark(MAPPINGS[name], groups)
    note(benchmark, GROUPS)


@sizes
@pytest.mark.parametrize("name", list(MAPPINGS))
def test_plain_mapping(benchmark: BenchmarkFixture, name: str, size: int) -> None:
    """The same mapping, one group at a time in plain Python, with the same rewards."""
    groups = batch(PLAIN_GROUPS, size)
    rewards = benchmark(plain.rewards, name, groups)
    np.testing.assert_allclose(rewards, MAPPINGS[name](groups).reward, atol=1e-6)
    note(benchmark, PLAIN_GROUPS)


@sizes
@pytest.mark.parametrize("name", list(NORMALIZERS))
def test_normalizer(benchmark: BenchmarkFixture, name: str, size: int) -> None:
    """A normalizer over arrays."""
    rewards = MAPPINGS["factorized"](batch(GROUPS, size))
    benchmark(advantages, NORMALIZERS[name], rewards.reward, rewards.components)
    note(benchmark, GROUPS)


@sizes
def test_plain_normalizer(benchmark: BenchmarkFixture, size: int) -> None:
    """The paper's normalizer, one group at a time in plain Python."""
    rewards = MAPPINGS["factorized"](batch(PLAIN_GROUPS, size)).reward.tolist()
    benchmark(lambda: [plain.advantages(row) for row in rewards])
    note(benchmark, PLAIN_GROUPS)
