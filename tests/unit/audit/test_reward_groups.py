"""Groups of rewards as flat columns."""

import numpy as np
import pytest

from search_to_signal.audit.groups import Assumption, of_arrays, of_outcomes, summed
from search_to_signal.base.errors import IllFormedGroupError
from search_to_signal.records.groups import Candidate, ExternalGroup, external_batch
from search_to_signal.records.schema import Outcome


def test_uneven_groups_and_singletons_are_ordinary() -> None:
    groups = of_arrays([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [3, 1, 2], advantage=[1.0] * 6)
    assert groups.sizes.tolist() == [3, 1, 2]
    assert groups.group.tolist() == [0, 0, 0, 1, 2, 2]


def test_a_reward_that_is_no_number_is_kept() -> None:
    groups = of_arrays([1.0, np.nan, -np.inf], [3])
    assert groups.scored.tolist() == [True, False, False]
    assert np.isneginf(groups.reward[2])


def test_components_have_weights() -> None:
    parts = {"format": [0.0, 1.0], "length": [1.0, 1.0]}
    groups = of_arrays([1.0, 3.0], [2], components=parts, weights={"format": 2.0})
    assert dict(groups.weights) == {"format": 2.0, "length": 1.0}
    assert sum(groups.components[name] * weight for name, weight in groups.weights.items()).tolist() == [
        1.0,
        3.0,
    ]  # type: ignore[union-attr]
    with pytest.raises(IllFormedGroupError, match="weight"):
        of_arrays([1.0, 3.0], [2], components=parts, weights={"fromat": 2.0})


def test_columns_are_frozen() -> None:
    """What one table computes cannot change what the next one reads."""
    groups = of_arrays([1.0, 2.0], [2])
    with pytest.raises(ValueError, match="read-only"):
        groups.reward[0] = 5.0
    with pytest.raises(TypeError):
        groups.components["x"] = groups.reward  # type: ignore[index]


@pytest.mark.parametrize(
    ("sizes", "columns"),
    [([2], {}), ([3, 0], {}), ([4], {}), ([3], {"advantage": [1.0]}), ([3], {"advantages": [1.0] * 3})],
)
def test_columns_that_do_not_fit_are_refused(sizes: list[int], columns: dict[str, list[float]]) -> None:
    with pytest.raises(IllFormedGroupError):
        of_arrays([0.0, 1.0, 2.0], sizes, **columns)


def test_outcome_level_groups_convert() -> None:
    same = Candidate(Outcome.VALID, score=1.0, response="a")
    failed = Candidate(Outcome.RUNTIME_FAILURE, response="b")
    batch = external_batch([ExternalGroup((same, same)), ExternalGroup((same, failed))])
    groups = of_outcomes(batch, np.array([[1.0, 1.0], [1.0, -1.0]]))
    assert groups.reward.tolist() == [1.0, 1.0, 1.0, -1.0]
    assert [groups.status.names[code] for code in groups.status.code] == ["valid"] * 3 + ["runtime_failure"]
    assert groups.response[0] == groups.response[1]
    assert groups.response[2] != groups.response[3]


def test_evidence_of_batches_adds_up() -> None:
    one, two = (
        Assumption("runs", "so", {"groups": 2, "groups of 8": 2}),
        Assumption("runs", "so", {"groups": 1}),
    )
    other = Assumption("unscored", "thus", {"NaN": 1})
    assert summed([one, other, two]) == (Assumption("runs", "so", {"groups": 3, "groups of 8": 2}), other)
