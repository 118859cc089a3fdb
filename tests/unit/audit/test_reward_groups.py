"""Groups of rewards as flat columns, and from frames: mappings of columns stand in for pandas and polars."""

from typing import Any

import numpy as np
import pytest

from search_to_signal import audit
from search_to_signal.audit.groups import Assumption, of_arrays, of_outcomes, summed
from search_to_signal.base.errors import IllFormedGroupError, RecordError
from search_to_signal.records.groups import Candidate, ExternalGroup, external_batch
from search_to_signal.records.schema import Outcome


def test_uneven_groups_and_rewards_that_are_no_number() -> None:
    groups = of_arrays([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [3, 1, 2], advantage=[1.0] * 6)
    assert groups.sizes.tolist() == [3, 1, 2]
    assert groups.group.tolist() == [0, 0, 0, 1, 2, 2]
    groups = of_arrays([1.0, np.nan, -np.inf], [3])
    assert groups.scored.tolist() == [True, False, False]
    assert np.isneginf(groups.reward[2])
    # What one table computes cannot change what the next one reads.
    groups = of_arrays([1.0, 2.0], [2])
    with pytest.raises(ValueError, match="read-only"):
        groups.reward[0] = 5.0
    with pytest.raises(TypeError):
        groups.components["x"] = groups.reward  # type: ignore[index]


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


@pytest.mark.parametrize(
    ("sizes", "columns"),
    [([2], {}), ([3, 0], {}), ([4], {}), ([3], {"advantage": [1.0]}), ([3], {"advantages": [1.0] * 3})],
)
def test_columns_that_do_not_fit_are_refused(sizes: list[int], columns: dict[str, list[float]]) -> None:
    with pytest.raises(IllFormedGroupError):
        of_arrays([0.0, 1.0, 2.0], sizes, **columns)


def test_outcome_level_groups_and_evidence_add_up() -> None:
    same = Candidate(Outcome.VALID, score=1.0, response="a")
    failed = Candidate(Outcome.RUNTIME_FAILURE, response="b")
    batch = external_batch([ExternalGroup((same, same)), ExternalGroup((same, failed))])
    groups = of_outcomes(batch, np.array([[1.0, 1.0], [1.0, -1.0]]))
    assert groups.reward.tolist() == [1.0, 1.0, 1.0, -1.0]
    assert [groups.status.names[code] for code in groups.status.code] == ["valid"] * 3 + ["runtime_failure"]
    assert groups.response[0] == groups.response[1]
    assert groups.response[2] != groups.response[3]
    one, two = (
        Assumption("runs", "so", {"groups": 2, "groups of 8": 2}),
        Assumption("runs", "so", {"groups": 1}),
    )
    other = Assumption("unscored", "thus", {"NaN": 1})
    assert summed([one, other, two]) == (Assumption("runs", "so", {"groups": 3, "groups of 8": 2}), other)


class Table:
    """Columns behind ``columns`` and item access; iterating gives values, as polars does."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def __iter__(self) -> Any:
        return iter(self._columns.values())


COLUMNS: dict[str, list[Any]] = {
    "uid": ["b", "a", "b", "a", "b"],
    "step": [1, 1, 1, 1, 2],
    "score": [0.0, 1.0, 2.0, 3.0, 4.0],
    "advantage": [-1.0, -1.0, 1.0, 1.0, 0.0],
    "label": ["x", "y", "x", "y", "x"],
}


@pytest.mark.parametrize("frame", [COLUMNS, Table(COLUMNS)])
def test_rows_of_a_group_stand_anywhere(frame: Any) -> None:
    groups = audit.of_frame(frame, group="uid", step="step", reward="score")
    assert groups.sizes.tolist() == [2, 2, 1]
    assert groups.reward.tolist() == [0.0, 2.0, 1.0, 3.0, 4.0]
    assert groups.position.tolist() == [0, 2, 1, 3, 4]
    assert groups.step.tolist() == [1, 1, 2]
    assert groups.advantage.tolist() == [-1.0, 1.0, -1.0, 1.0, 0.0]
    assert [groups.label.names[code] for code in groups.label.code] == ["x", "x", "y", "y", "x"]


def test_a_group_without_steps_is_one(frame: Any = COLUMNS) -> None:
    assert audit.of_frame(frame, group="uid", reward="score").sizes.tolist() == [3, 2]


def test_components_follow_their_rows() -> None:
    frame = {"group": [1, 2, 1], "reward": [2.0, 4.0, 6.0], "half": np.array([1.0, 2.0, 3.0])}
    groups = audit.of_frame(frame, components=["half"], weights={"half": 2.0})
    assert groups.components["half"].tolist() == [1.0, 3.0, 2.0]
    assert groups.weights["half"] == 2.0


def test_columns_that_are_none_are_refused() -> None:
    with pytest.raises(RecordError, match="no groups"):
        audit.audit(audit.of_frame({"group": [], "reward": []}))
    with pytest.raises(IllFormedGroupError, match="no column reward: name what it has"):
        audit.of_frame(COLUMNS, group="uid")


@pytest.mark.parametrize("missing", [float("nan"), None])
def test_a_row_without_a_group_is_named(missing: float | None) -> None:
    with pytest.raises(IllFormedGroupError, match="row 1 has no prompt"):
        audit.of_frame({"prompt": [1.0, missing, 1.0], "reward": [1.0, 2.0, 3.0]}, group="prompt")


def test_a_frame_of_nan_advantages_says_that_they_may_be_nan() -> None:
    """pandas cannot say which: none, or NaN as the trainer computed it."""
    frame = {"group": ["a", "a"], "reward": [0.0, 1.0], "advantage": [np.nan, np.nan]}
    assert [one.key for one in audit.of_frame(frame).assumptions] == ["empty_advantages"]
