"""Equal responses: how many there are, what credit they take, and where they are scored differently."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal.cli import main


def test_repeats_can_fail_a_run(tmp_path: Path, printed: Printed) -> None:
    path = logs.jsonl(tmp_path / "x.jsonl", [{"group": 1, "reward": 1.0, "response": "same"}] * 2)
    assert printed(path, "--fail-on", "repeated=0.5", code=1)
    assert printed(path, "--fail-on", "repeated=1")


def own_rows(groups: int, again: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Rows of a log of one's own, three to a group; those with these numbers are written once more."""
    rows = [
        {"id": 3 * g + k, "group": g, "reward": k / 2, "response": f"{g}-{k}"}
        for g in range(groups)
        for k in range(3)
    ]
    return [row for number, row in enumerate(rows) for _ in range(1 + again.count(number))]


def told(rows: Sequence[dict[str, Any]], place: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints of such a log."""
    assert main(["audit", str(logs.jsonl(place / "own.jsonl", rows))]) == 0
    return capsys.readouterr().out


def test_rows_that_stand_twice_are_said_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(own_rows(2, again=[4]), tmp_path, capsys)
    place = f"{tmp_path / 'own.jsonl'}:6"
    assert f"repeat another of their group. 1 row stands twice, equal in all that is read: {place}." in text
    assert "Change: Leave out the rows that were logged twice. Where they were sampled twice: raise" in text
    lines = own_rows(9, again=[0, 0, 4, 7, 11])
    assert f"5 rows stand twice, equal in all that is read: {tmp_path / 'own.jsonl'}:2, " in (
        text := told(lines, tmp_path, capsys)
    )
    assert ":3, " in text
    assert ":8 and 2 more." in text


def test_a_row_of_many_that_stands_twice_is_said_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(own_rows(60, again=[100]), tmp_path, capsys)
    assert "Change: Leave out" not in text
    assert f"1 row stands twice, equal in all that is read: {tmp_path / 'own.jsonl'}:102." in text


def test_a_log_that_stands_twice_is_said_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told([*own_rows(4), *own_rows(4)], tmp_path, capsys)
    assert "12 rows stand twice" in text
    assert "Change: Leave out the rows that were logged twice" in text


def test_what_was_sampled_twice_is_a_matter_of_sampling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = own_rows(4)
    rows[1] |= {"reward": 0.0, "response": "0-0"}
    text = told(rows, tmp_path, capsys)
    assert "Change: Raise the sampling temperature, or top_p." in text
    assert "stand" not in text
    text = told([*own_rows(2), {"group": 1, "reward": 9.0, "response": "1-0"}], tmp_path, capsys)
    assert "1 of 7 completions (14 %) repeat another" in text
    assert "stands twice" not in text
