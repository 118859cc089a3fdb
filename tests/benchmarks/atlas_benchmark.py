"""Groups per second of every entry of the atlas.

    python -m pytest tests/benchmarks/atlas_benchmark.py -s --benchmark-timer=time.process_time

One core; each round handles 131,072 groups of 8, even or of 4 to 12. Wanted: a million groups a second
of an affine entry, a hundred thousand of another. The rates are of the median round; nothing fails on a slow
machine. The name keeps the file out of an ordinary test run.
"""

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from search_to_signal.audit.atlas import RewardBatch, advantages, entries

GROUPS, SIZE = 1 << 17, 8


def batch(even: bool, binary: bool) -> RewardBatch:
    """Random rewards in groups of 8, or of 4 to 12 with 8 on average."""
    stream = np.random.default_rng(8)
    sizes = np.full(GROUPS, SIZE) if even else stream.integers(4, 13, GROUPS)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    rewards = stream.normal(size=offsets[-1])
    lengths = stream.integers(1, 2000, offsets[-1])
    return RewardBatch((rewards > 0).astype(np.float64) if binary else rewards, offsets, lengths)


@pytest.mark.parametrize("even", [True, False], ids=["even", "uneven"])
@pytest.mark.parametrize("name", list(entries()))
def test_entry(benchmark: BenchmarkFixture, name: str, even: bool) -> None:
    """Advantages of one batch."""
    entry = entries()[name]
    if entry.uneven == "refused" and not even:
        pytest.skip("refuses uneven groups")
    benchmark(advantages, entry, batch(even, entry.domain == "binary"))
    if benchmark.stats is not None:
        rate = GROUPS / benchmark.stats.stats.median
        wanted = 100_000 if entry.formula else 1_000_000
        print(
            f"\n{benchmark.name}: {rate:,.0f} groups/s, {'reached' if rate >= wanted else 'BELOW'} {wanted:,}"
        )
