"""Groups from frames: a mapping of columns stands in for pandas and polars, which are not installed."""

from typing import Any

import numpy as np
import pytest

from search_to_signal import audit
from search_to_signal.base.errors import IllFormedGroupError, RecordError


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


def test_nothing_is_no_audit() -> None:
    with pytest.raises(RecordError, match="no groups"):
        audit.audit(audit.of_frame({"group": [], "reward": []}))


def test_a_missing_column_is_named() -> None:
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
