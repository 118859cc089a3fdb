"""What every reward mapping owes the learner, ours and a stranger's."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from search_to_signal.base.errors import ConfigError, IllFormedGroupError, MappingError
from search_to_signal.credit import ALTERNATIVES, MAPPINGS, RewardMapping, answerable, get_mapping
from search_to_signal.credit.base import Rewards, rewards_of
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import Outcome
from spec.strategies import FAILURES, LARGEST, any_scores, group, groups, ordinary_groups, permuted, stacked

TOLERANCE = 1e-6
FAILED = Outcome.RUNTIME_FAILURE
STRANGER = MAPPINGS["factorized"]


@example(batch=group([0.0, 1.0, -1.0], bases=[0.0], frontier=0.0))
@example(batch=group([5e-324, -5e-324, 0.0], bases=[1e-300], frontier=0.0))
@example(batch=group([LARGEST, -LARGEST, 1e300, FAILED], bases=[-LARGEST], frontier=-LARGEST))
@example(batch=group([FAILED] * 3, bases=[-6.0], frontier=-6.0))
@given(batch=groups())
def test_totality(mapping: RewardMapping, batch: GroupBatch) -> None:
    """R-MAP-01: Every well-formed group, whatever its outcomes and scores, gets finite rewards (N, G)."""
    result = mapping(batch)
    for values in (result.reward, *result.components.values()):
        assert values.shape == batch.outcome.shape
        assert np.isfinite(values).all()


@given(batch=groups(size=st.just(1)))
def test_group_of_one(mapping: RewardMapping, batch: GroupBatch) -> None:
    """R-MAP-02: A group of one gets a finite reward and no advantage."""
    assert group_advantages(mapping(batch).reward).tolist() == [[0.0]]


@given(batch=ordinary_groups(), data=st.data())
def test_permutation(mapping: RewardMapping, batch: GroupBatch, data: st.DataObject) -> None:
    """R-MAP-03: Permuting the completions permutes their rewards (D09)."""
    order = data.draw(st.permutations(range(batch.outcome.shape[1])))
    expected = mapping(batch).reward[:, np.array(order)]
    np.testing.assert_allclose(mapping(permuted(batch, order)).reward, expected, rtol=0.0, atol=TOLERANCE)


@given(batch=groups(), data=st.data())
def test_ties(mapping: RewardMapping, batch: GroupBatch, data: st.DataObject) -> None:
    """R-MAP-04: Completions with identical records get identical rewards, bit for bit."""
    size = batch.outcome.shape[1]
    chosen = data.draw(st.lists(st.integers(0, size - 1), min_size=size, max_size=size))
    reward = mapping(permuted(batch, chosen)).reward[0]
    for first, i in enumerate(chosen):
        for second, j in enumerate(chosen):
            assert i != j or reward[first] == reward[second]


@given(first=ordinary_groups(size=st.just(4)), second=groups(size=st.just(4)))
def test_independence(mapping: RewardMapping, first: GroupBatch, second: GroupBatch) -> None:
    """R-MAP-05: A group's rewards do not depend on the other groups of the batch."""
    together = mapping(stacked(second, first)).reward[1:]
    np.testing.assert_allclose(together, mapping(first).reward, rtol=0.0, atol=1e-9)


@given(batch=groups())
def test_purity(mapping: RewardMapping, batch: GroupBatch) -> None:
    """R-MAP-06: A mapping leaves its input as it was, and gives the same bits when asked again."""
    before = {field.name: getattr(batch, field.name).copy() for field in fields(batch)}
    first, second = mapping(batch), mapping(batch)
    for name, values in before.items():
        np.testing.assert_array_equal(getattr(batch, name), values)
    np.testing.assert_array_equal(first.reward, second.reward)


@given(failure=st.sampled_from(FAILURES), size=st.integers(2, 16))
def test_one_kind_of_failure(mapping: RewardMapping, failure: Outcome, size: int) -> None:
    """R-MAP-07: A group that fails in one way throughout teaches nothing."""
    reward = mapping(group([failure] * size, bases=[-6.0], frontier=-5.0)).reward
    assert not group_advantages(reward).any()


@given(score=any_scores, size=st.integers(2, 16), base=any_scores)
def test_one_score(mapping: RewardMapping, score: float, size: int, base: float) -> None:
    """R-MAP-08: A group of identical valid completions teaches nothing."""
    batch = group([score] * size, bases=[base], frontier=base, responses=[0] * size)
    assert not group_advantages(mapping(batch).reward).any()


@pytest.mark.parametrize("size", range(2, 17))
def test_one_valid(mapping: RewardMapping, size: int) -> None:
    """R-MAP-09: The only valid completion of a group, if better than its base, gets the highest reward."""
    batch = group([-5.5] + [FAILED] * (size - 1), bases=[-6.0], frontier=-6.0)
    reward = mapping(batch).reward[0]
    assert (reward[0] > reward[1:]).all()


@given(batch=ordinary_groups(compared=False))
def test_no_comparator(mapping: RewardMapping, batch: GroupBatch) -> None:
    """R-MAP-10: Without a comparator, no completion is eligible, and a reward still exists (D05)."""
    assert not batch.eligible.any()
    assert np.isfinite(mapping(batch).reward).all()


def faulty(**changes: object) -> None:
    """Make a group with one array replaced."""
    good = group([-6.0, FAILED], bases=[-6.0], frontier=-6.0)
    GroupBatch(**{**{field.name: getattr(good, field.name) for field in fields(good)}, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"score": np.array([[np.nan, np.nan]])},
        {"score": np.array([[np.inf, np.nan]])},
        {"score": np.array([[-6.0, -6.0]])},
        {"score": np.array([[-6.0, np.nan, np.nan]])},
        {"outcome": np.array([[0, 17]], dtype=np.int8)},
        {"bases": np.array([[np.inf]])},
        {"frontier": np.array([-np.inf])},
        {"frontier": np.array([0.0, 0.0])},
        {"archive_gap": np.array([[-1.0, np.nan]])},
        {"exposure": np.array([[1.5, np.nan]])},
    ],
)
def test_ill_formed(changes: dict[str, object]) -> None:
    """R-MAP-11: A group that is not well formed cannot be made, so no mapping sees one (D17)."""
    with pytest.raises(IllFormedGroupError, match="repair"):
        faulty(**changes)


# For each alternative a group on which the decision matters.
TELLING = {
    "native_d02": group([-7.0, -6.5], bases=[-7.0, -6.0], copies=[False, False]),
    "factorized_d06": group([1e-9, -1e-9, 0.0], bases=[0.0]),
    "tail_weighted_d07_score_first": group([-6.5, -8.0, FAILED], [-6.0], -6.0, gap=[0.0, 1.0, 0.0]),
    "tail_weighted_d07_summed": group([-8.0, -8.0, -7.0], [-6.0], -6.0, gap=[1, 1, 0], responses=[0, 0, 1]),
    "tail_weighted_d08": group([-6.5, -8.0, FAILED], [-6.0], -6.0, gap=[0.0, 5e-8, 0.0]),
    "tail_weighted_d09": group([-7.0, -7.0, FAILED], [-6.0], -6.0, responses=[0, 0, 1]),
    "tail_weighted_d28": group([-5.0, -6.5, -6.75, FAILED], frontier=-6.0),
    "search_exposure_d27_zero": group([-6.0, -6.0], bases=[-5.0], exposure=[0.5, 0.5001]),
    "search_exposure_d27_plain": group([-6.0, -6.0], bases=[-5.0], exposure=[0.5, 0.5001]),
    "search_exposure_d14": group([Outcome.MISSING_CODE, Outcome.RANDOMNESS, -6.0], bases=[-6.0]),
}


@pytest.mark.parametrize("name", ALTERNATIVES)
@given(batch=groups())
def test_alternatives(name: str, batch: GroupBatch) -> None:
    """R-MAP-13: Every alternative reading of a decision is total and differs from the choice somewhere."""
    assert np.isfinite(ALTERNATIVES[name](batch).reward).all()
    chosen = MAPPINGS[name[: name.index("_d")]]
    changed = ALTERNATIVES[name](TELLING[name]).reward - chosen(TELLING[name]).reward
    assert np.abs(changed).max() > 0.1


@pytest.mark.parametrize(
    ("exposure", "asked"), [([0.5, 0.5], True), ([0.5, np.nan], True), ([np.nan, np.nan], False)]
)
def test_asked_where_exposures_are_recorded(exposure: list[float], asked: bool) -> None:
    """R-MAP-14: What reads exposures is asked unless eligible completions exist and none has one."""
    batch = group([-6.5, -7.0], bases=[-6.0], exposure=exposure)
    others = {name: mapping for name, mapping in MAPPINGS.items() if name != "search_exposure"}
    assert answerable(MAPPINGS, batch) == (MAPPINGS if asked else others)
    nobody = stacked(group([FAILED, FAILED], bases=[-6.0]), group([-6.5, -7.0], exposure=exposure))
    assert answerable(MAPPINGS, nobody) == MAPPINGS


class Partly:
    """A mapping of somebody else, with one number that is none; it says nothing of exposures."""

    name = "partly"

    def __init__(self, part: float, total: float) -> None:
        self.part, self.total = part, total

    def __call__(self, groups: GroupBatch) -> Rewards:
        part, total = np.zeros(groups.outcome.shape), np.zeros(groups.outcome.shape)
        part[0, -1], total[0, -1] = self.part, self.total
        return Rewards({"part": part}, total)


@pytest.mark.parametrize(("part", "total"), [(np.nan, 0.0), (0.0, np.nan), (np.inf, 0.0), (0.0, -np.inf)])
def test_one_number_that_is_none(part: float, total: float) -> None:
    """R-MAP-15: A mapping that is not finite in a single place, of a component or the reward, is refused."""
    batch = group([-6.5, -7.0], bases=[-6.0], exposure=[np.nan, np.nan])
    assert rewards_of(Partly(0.0, 1.0), batch).reward.tolist() == [[0.0, 1.0]]
    assert list(answerable({"partly": Partly(0.0, 1.0)}, batch)) == ["partly"]
    with pytest.raises(MappingError, match="NaN or infinite"):
        rewards_of(Partly(part, total), batch)


def test_registry() -> None:
    """R-MAP-12: Mappings are found by name and by import path; an unknown name lists the known ones."""
    assert get_mapping("native") is MAPPINGS["native"]
    assert get_mapping("spec.test_mappings:STRANGER") is STRANGER
    with pytest.raises(ConfigError, match=r"factorized, .*native, .*search_exposure, .*tail_weighted,"):
        get_mapping("frozen")
    with pytest.raises(ConfigError, match="is not a reward mapping"):
        get_mapping("spec.test_mappings:TOLERANCE")
