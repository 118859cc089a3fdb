"""Equal responses: how many there are, what credit they take, and where they are scored differently."""

from pathlib import Path

import pytest
from tests.unit.audit import logs

from search_to_signal import audit
from search_to_signal.cli import main


def repeated() -> audit.RewardGroups:
    """Response 7 three times in the first group and once in the second, which logs one of two."""
    return audit.of_arrays(
        [1.0, 1.0, 0.5, 0.0, 1.0, 0.0],
        [4, 2],
        response=[7, 7, 7, 5, 7, 0],
        advantage=[0.75, 0.25, 0.5, -1.5, 0.5, -0.5],
    )


def test_repeats_and_their_credit_are_counted() -> None:
    """Those after the first, within their group; the mass is that of all logged responses."""
    found = audit.audit(repeated())
    assert found.counts["repeated"] == found.counts["disagreeing"] == 1
    assert (found.repeats.completions, found.repeats.repeats) == (5, 2)
    assert found.repeats.share == pytest.approx(0.75 / 2.0)
    (line,) = [line for line in audit.conclusions(found) if "more than once" in line]
    assert "2 of 5 completions" in line
    assert "37.5 %" in line


def test_responses_that_were_not_logged_repeat_nothing() -> None:
    """Rows without a text are not equal to each other."""
    found = audit.audit(audit.of_arrays([0.0, 1.0, 2.0], [3]))
    assert found.counts["repeated"] == found.repeats.completions == 0


def test_equal_responses_with_equal_rewards_agree() -> None:
    """Rewards that are missing for both are no disagreement."""
    nan = float("nan")
    found = audit.audit(audit.of_arrays([nan, nan, 1.0, 1.0], [2, 2], response=[3, 3, 3, 3]))
    assert (found.counts["repeated"], found.counts["disagreeing"]) == (2, 0)


def test_repeats_can_fail_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--fail-on takes them as any other share of groups."""
    rows = [{"group": 1, "reward": 1.0, "response": "same"}] * 2
    path = logs.jsonl(tmp_path / "x.jsonl", rows)
    assert main(["audit", str(path), "--fail-on", "repeated=0.5"]) == 1
    assert "repeated is 1.0000" in capsys.readouterr().err


def test_a_candidate_that_was_tried_before_is_counted() -> None:
    """Over the whole log of a search, where every candidate is a group of its own."""
    parts = [
        audit.of_arrays([1.0, 2.0], [1, 1], response=[8, 9], improvement=[0.5, 0.5]),
        audit.of_arrays([1.0, 2.0], [1, 1], response=[8, 0], improvement=[0.5, 0.5]),
    ]
    found = audit.audit(iter(parts))
    assert found.counts["seen_before"] == 1
    assert any("1 of 4 candidates have a text" in line for line in audit.conclusions(found))
