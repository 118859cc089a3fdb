"""The atlas of normalizers: every entry does what its data says, and breaks what it says it breaks."""

import re
from collections.abc import Callable
from itertools import combinations
from math import comb

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_to_signal.audit.atlas import (
    NormalizerEntry,
    RewardBatch,
    entries,
    get_entry,
    source_of,
    sources,
    token_weights,
)
from search_to_signal.audit.atlas.compute import advantages
from search_to_signal.base.errors import ConfigError, IllFormedGroupError
from search_to_signal.base.numerics import Floats
from search_to_signal.credit.normalizers import NORMALIZERS
from spec.strategies import reward_rows

every = pytest.mark.parametrize("entry", list(entries().values()), ids=list(entries()))

# Rewards on which a property fails wherever an entry declares it broken.
EXAMPLES = {
    "order": [0.0, 0.5, 1.0, 1.0],
    "negative_mean": [-1.0, -0.9, -0.85, 0.1],
    "offset": [0.0, 0.0, 0.0, 1.0],
    "scale": [0.0, 0.0, 0.0, 1.0],
    "ties": [0.0, 1.0, 1.0, 2.0],
    "tiny_spread": [0.0, 0.0, 0.0, 1.0],
}
LENGTHS = (3, 1, 4, 1, 5, 9, 2, 6, 5)


def made(entry: NormalizerEntry, row: Floats, dtype: str | None = "float64") -> Floats:
    """Advantages of one group, whose responses have the first of LENGTHS."""
    lengths = np.array(LENGTHS[: len(row)])
    return advantages(entry, RewardBatch.even(row[None, :], lengths[None, :]), dtype)


def in_order(entry: NormalizerEntry, row: Floats) -> bool:
    """A higher reward never gets a lower advantage."""
    result = made(entry, row)
    sunk = (row[:, None] > row) & (result[:, None] < result - 1e-9 * (1.0 + np.abs(result)))
    return not sunk.any()


def same(first: Floats, second: Floats, tolerance: float) -> bool:
    """Whether two results agree relative to the greatest advantage."""
    return bool((np.abs(first - second) <= tolerance * np.abs(first).max() + 1e-9).all())


def ties_kept(entry: NormalizerEntry, row: Floats) -> bool:
    """Equal rewards get equal advantages."""
    result = made(entry, row)
    apart = np.abs(result[:, None] - result) > 1e-9 * (1.0 + np.abs(result))
    return not (apart & (row[:, None] == row)).any()


HOLDS: dict[str, Callable[[NormalizerEntry, Floats], bool]] = {
    # From 0 up, so that the mean is positive, and from below 0 down.
    "order": lambda entry, row: in_order(entry, row - row.min()),
    "negative_mean": lambda entry, row: in_order(entry, row - max(float(row.max()) + 0.125, 0.0)),
    "offset": lambda entry, row: same(made(entry, row - row.min()), made(entry, row - row.min() + 2.0), 1e-5),
    "scale": lambda entry, row: same(
        made(entry, row - row.min()), made(entry, 2.0 * (row - row.min())), 1e-2
    ),
    "ties": ties_kept,
    # Rewards within 1e-5 of each other get no advantage above 0.1.
    "tiny_spread": lambda entry, row: bool(
        (np.abs(made(entry, (row - row.min()) / np.ptp(row) * 1e-5)) <= 0.1).all()
    ),
}
FOR_BINARY = ("order", "ties")

eighths = st.integers(-32, 32).map(lambda number: number / 8.0)
bits = st.integers(0, 1).map(float)


def rows(elements: st.SearchStrategy[float]) -> st.SearchStrategy[Floats]:
    """One group of 3 to 9 whose rewards differ by half and more."""
    drawn = st.lists(elements, min_size=3, max_size=9).map(np.array)
    return drawn.filter(lambda row: bool(np.ptp(row) >= 0.5))


# Made once: Hypothesis reads the source of a filter's lambda wherever one is made.
binary_rows, other_rows = rows(bits), rows(eighths)


@every
@given(data=st.data())
def test_properties(entry: NormalizerEntry, data: st.DataObject) -> None:
    """R-ATL-05: What an entry does not declare broken holds: order, offset, scale, ties, tiny spread."""
    binary = entry.domain == "binary"
    row = data.draw(binary_rows if binary else other_rows)
    for name in set(FOR_BINARY if binary else HOLDS) - set(entry.breaks):
        assert HOLDS[name](entry, row), name


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        pytest.param(entry, name, id=f"{entry.name}-{name}")
        for entry in entries().values()
        for name in entry.breaks
    ],
)
def test_breaks(entry: NormalizerEntry, name: str) -> None:
    """R-ATL-06: Every break that an entry declares is one, on an example; a refusal is one too."""
    try:
        holds = HOLDS[name](entry, np.array(EXAMPLES[name]))
    except IllFormedGroupError:
        return
    assert not holds


def test_maxrl_reverses() -> None:
    """R-ATL-07: Unguarded MaxRL gives the best of a group with a negative mean the lowest advantage."""
    result = made(get_entry("maxrl"), np.array(EXAMPLES["negative_mean"]))
    assert result.argmin() == 3
    assert result[3] == pytest.approx(-1.15, abs=0.01)
    assert not made(get_entry("prime-rl-maxrl"), np.array(EXAMPLES["negative_mean"])).any()


SIX = {
    "trl-0.15.1-grpo": 0.071,
    "verl-grpo": 1.25,
    "slime-grpo": 1.25,
    "rllm-grpo": 1.41,
    "openrlhf-grpo": 1.50,
    "prime-rl-grpo": 7.5e-6,
}


@pytest.mark.parametrize("name", SIX)
def test_six_of_one_name(name: str) -> None:
    """R-ATL-08: [0, 0, 0, 1e-5] under six frameworks' GRPO: 0.071, 1.25, 1.25, 1.41, 1.50 and 7.5e-6."""
    result = made(get_entry(name), np.array([0.0, 0.0, 0.0, 1e-5]), None)
    assert get_entry(name).algorithm == "GRPO"
    assert result.max() == pytest.approx(SIX[name], rel=0.01)


@every
def test_singleton(entry: NormalizerEntry) -> None:
    """R-ATL-09: A group of one gets what the entry says, before any whitening."""
    value = 1.0 if entry.domain == "binary" else 3.0
    lone = RewardBatch.uneven([[value], [value]], [2, 3])
    first = msgspec.structs.replace(entry, whiten=None)
    if entry.singleton == "refused":
        with pytest.raises(IllFormedGroupError):
            advantages(first, lone)
        return
    result = advantages(first, lone)
    if entry.singleton == "own formula":
        assert (result != 0.0).all()
        return
    expected = {"zero": 0.0, "reward": value, "nan": np.nan, "reward / epsilon": value * 1e6}[entry.singleton]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-9)


@every
def test_flat(entry: NormalizerEntry) -> None:
    """R-ATL-10: A group of equal rewards gets zeros, a rounding residue, or the reward, as the entry says."""
    first = msgspec.structs.replace(entry, whiten=None)
    values = (1.0, 0.0) if entry.domain == "binary" else (0.1, 0.3, 0.7, 2.7, 1234.567)
    results = {(v, n): made(first, np.full(n, v), None) for v in values for n in range(4, 9)}
    if entry.flat == "reward":
        assert all(result == pytest.approx(value) for (value, _), result in results.items())
        return
    assert not made(first, np.full(4, values[0] if entry.domain == "binary" else 0.5), None).any()
    greatest = max(float(np.abs(result).max()) for result in results.values())
    assert (greatest > 0.0) == (entry.flat == "rounding")
    assert greatest < 1.5


def test_others_that_are_equal() -> None:
    """R-ATL-21: In float32 NeMo-RL's deviation of equal others can be rounding: reports of -2075 and 7428."""
    nemo = get_entry("nemo-grpo")
    assert made(nemo, np.array([0.0, *[0.35] * 7]), None)[0] < -2000.0
    assert made(nemo, np.array([1.0, *[0.3] * 7]), None)[0] == pytest.approx(7428.0, abs=1.0)
    # Where the rewards are exact, so is the zero, and the response is not divided.
    assert made(nemo, np.array([0.0, *[0.5] * 7]), None)[0] == -0.5


def test_squares_that_cancel() -> None:
    """R-ATL-22: In float32 NeMo-RL's mean of squares less the square of the mean hides a tight group."""
    row = np.array([100.0, 100.01, 100.02, 100.03])
    nemo = get_entry("nemo-grpo-with-self")
    np.testing.assert_allclose(made(nemo, row, None), [-0.015, -0.005, 0.005, 0.015], atol=1e-5)
    np.testing.assert_allclose(made(nemo, row), [-1.1618, -0.3873, 0.3873, 1.1618], atol=1e-4)


def test_flat_that_is_not() -> None:
    """R-ATL-11: In float32 an epsilon of 1e-9 turns a flat group's rounding into advantages of about one."""
    assert np.abs(made(get_entry("openrlhf-grpo"), np.full(7, 0.1), None)).max() > 0.5


@every
def test_nan(entry: NormalizerEntry) -> None:
    """R-ATL-12: A NaN reward reaches its own row, its group, the batch or nobody, as the entry says."""
    rewards = np.array([[0.0, np.nan, 1.0, 1.0], [0.0, 1.0, 1.0, 0.0]])
    given_batch = RewardBatch.even(rewards, np.array([LENGTHS[:4], LENGTHS[4:8]]))
    if entry.nan == "refused":
        with pytest.raises(IllFormedGroupError):
            advantages(entry, given_batch)
        return
    result = advantages(entry, given_batch)
    reached = {"row": [1], "group": list(range(4)), "batch": list(range(8))}.get(entry.nan, [])
    assert np.flatnonzero(np.isnan(result)).tolist() == reached
    if entry.nan == "ignored":
        assert result[1] == 0.0
    if entry.nan == "as zero":
        zeroed = RewardBatch.even(np.nan_to_num(rewards), np.array([LENGTHS[:4], LENGTHS[4:8]]))
        np.testing.assert_array_equal(result, advantages(entry, zeroed))


@every
def test_scope(entry: NormalizerEntry) -> None:
    """R-ATL-13: Another group of the batch changes advantages just where the entry's scope is the batch."""
    pair = np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    alone = made(entry, pair[0])
    both = RewardBatch.even(pair, np.array([LENGTHS[:4], LENGTHS[4:8]]))
    together = advantages(entry, both, "float64")[:4]
    assert np.allclose(alone, together, atol=1e-9) == (entry.scope == "group")


@every
def test_uneven(entry: NormalizerEntry) -> None:
    """R-ATL-14: Groups of several sizes are refused, taken as one, or each by itself, as the entry says."""
    groups, lengths = [[0.0, 1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]], LENGTHS
    uneven = RewardBatch.uneven(groups, lengths)
    if entry.uneven == "refused":
        with pytest.raises(IllFormedGroupError):
            advantages(entry, uneven)
        return
    result = advantages(entry, uneven, "float64")
    if entry.uneven == "whole batch":
        np.testing.assert_array_equal(result, advantages(entry, uneven.merged(), "float64"))
    elif entry.scope == "group":
        parts = [RewardBatch.uneven([groups[0]], lengths[:5]), RewardBatch.uneven([groups[1]], lengths[5:])]
        apart = np.concatenate([advantages(entry, part, "float64") for part in parts])
        np.testing.assert_allclose(result, apart, atol=1e-9)


@pytest.mark.parametrize("name", list(NORMALIZERS))
@given(rewards=reward_rows())
def test_ours(name: str, rewards: Floats) -> None:
    """R-ATL-15: Every normalizer of this project is an entry, and the entry calls it."""
    result = advantages(get_entry(name), RewardBatch.even(rewards))
    expected = NORMALIZERS[name](rewards)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-6 if name == "trl_float32" else 0.0)


@given(row=rows(eighths), k=st.integers(1, 3))
def test_best_of_k(row: Floats, k: int) -> None:
    """R-ATL-16: The max@k entry is the mean gain over all sets of k, as counted one set after another."""
    entry = msgspec.structs.replace(get_entry("pkpo-max"), options={"k": float(k)})
    expected = np.zeros(len(row))
    for chosen in combinations(range(len(row)), k):
        for one in chosen:
            others = [row[other] for other in chosen if other != one]
            expected[one] += max(row[list(chosen)]) - (max(others) if others else 0.0)
    np.testing.assert_allclose(made(entry, row), expected / comb(len(row), k), atol=1e-12)


def test_components() -> None:
    """R-ATL-17: GDPO normalizes each component, whatever its scale, and adds them with weights."""
    parts = {"a": np.array([0.0, 1.0, 2.0, 5.0]), "b": np.array([300.0, 0.0, 100.0, 0.0])}
    plain = RewardBatch.even((parts["a"] + parts["b"])[None, :])
    whole = RewardBatch(plain.rewards, plain.offsets, None, parts, {"b": 0.5})
    alone = [NORMALIZERS["group"](part[None, :])[0] for part in parts.values()]
    np.testing.assert_allclose(advantages(get_entry("gdpo"), whole), alone[0] + 0.5 * alone[1], atol=1e-12)


WEIGHTS = {
    "token_mean": [1 / 9] * 3,
    "token_sum": [1.0] * 3,
    "sequence_mean": [1 / 6, 1 / 3, 1 / 18],
    "sequence_sum": [1 / 3] * 3,
    "constant_length": [1 / 30] * 3,
    "constant_length_sum": [1 / 10] * 3,
    "prompt_mean": [1 / 6, 1 / 6, 1 / 12],
    "rollout_mean": [1 / 4, 1 / 14, 1 / 14],
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_aggregation(name: str) -> None:
    """R-ATL-18: Each aggregation gives a token its weight, for lengths 2, 1 and 6 in two groups."""
    uneven = RewardBatch.uneven([[0.0, 1.0], [2.0]], [2, 1, 6])
    result = token_weights(name, uneven, greatest_length=10, rollouts=np.array([0, 1, 1]))
    np.testing.assert_allclose(result, WEIGHTS[name])


def test_sources() -> None:
    """R-ATL-19: Every entry is of a source read at a full commit on a day, or marked unread."""
    for entry in entries().values():
        source = source_of(entry)
        if source.repository == "unread":
            assert (source.read, source.commit) == ("", "")
        elif source.repository != "this one":
            assert re.fullmatch(r"[0-9a-f]{40}", source.commit), entry.name
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", source.read), entry.name
            assert entry.path, entry.name
    assert any(source.repository == "unread" for source in sources().values())


def test_wrong_input() -> None:
    """R-ATL-20: An unknown entry lists the known; wrong shapes and missing lengths are refused."""
    with pytest.raises(ConfigError, match="verl-grpo"):
        get_entry("verl")
    for offsets in ([0, 2], [1, 3], [0, 0, 3], [0]):
        with pytest.raises(IllFormedGroupError, match="offsets"):
            RewardBatch(np.zeros(3), np.array(offsets))
    with pytest.raises(IllFormedGroupError, match="lengths"):
        advantages(get_entry("verl-opo"), RewardBatch.even(np.zeros((1, 3))))
    with pytest.raises(ConfigError, match="greatest length"):
        token_weights("constant_length", RewardBatch.uneven([[0.0]], [1]))
    with pytest.raises(ConfigError, match="token_mean"):
        token_weights("backend", RewardBatch.uneven([[0.0]], [1]))
