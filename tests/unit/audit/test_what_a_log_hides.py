"""What an audit could take wrong: rows out of turn or written twice, equal responses, slips."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.command import Capture
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal.audit.importers.base import joined, runs_of
from search_to_signal.audit.importers.rows import RolloutRow
from search_to_signal.cli import main

REAL = Path(__file__).parent / "real" / "trl-1.16.0-two-iterations"
TOLD = "are spread over several places of the log"


def in_turn(steps: int = 1) -> list[dict[str, Any]]:
    """Eight groups of eight in each step, a row of each in turn; the reward is the turn."""
    return [
        {"group": f"g{group}", "step": step, "reward": float(turn), "advantage": turn - 3.5}
        for step in range(steps)
        for turn in range(8)
        for group in range(8)
    ]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_groups_are_gathered_by_their_name(kind: str, tmp_path: Path, printed: Printed) -> None:
    rows, path = in_turn(), tmp_path / f"log.{kind}"
    if kind == "jsonl":
        logs.jsonl(path, rows)
    else:
        logs.parquet(path, {name: [row[name] for row in rows] for name in rows[0]})
    out = printed(path)
    assert "8 groups with 64 completions in 1 step (groups: 8 of 8)." in out
    assert f"8 of 8 groups (100.0 %) {TOLD}" in out
    assert "are explained bit for bit by" in out


def test_a_name_in_two_steps_is_two_groups(tmp_path: Path, printed: Printed) -> None:
    one, two = in_turn(2)[:64], in_turn(2)[64:]
    rows = [row for pair in zip(one, two, strict=True) for row in pair]
    path, out = logs.jsonl(tmp_path / "log.jsonl", rows), tmp_path / "out"
    assert "16 groups with 128 completions in 2 steps (groups: 16 of 8)." in printed(path, "--out", str(out))
    with (out / "steps.csv").open(encoding="utf-8", newline="") as file:
        steps = [(row["step"], row["groups"], row["completions"]) for row in csv.DictReader(file)]
    assert steps == [("0", "8", "64"), ("1", "8", "64")]
    rows = sorted(in_turn(), key=lambda row: row["group"])
    assert TOLD not in printed(logs.jsonl(tmp_path / "log.jsonl", rows))
    path = logs.jsonl(tmp_path / "log.jsonl", rows[1:] + rows[:1])
    assert f"1 of 8 groups (12.5 %) {TOLD}" in printed(path, "--fail-on", "scattered=0", code=1)


def test_no_more_is_held_than_is_open() -> None:
    read: list[int] = []

    def rows(groups: list[int]) -> Iterator[RolloutRow]:
        for position, group in enumerate(groups):
            read.append(position)
            yield RolloutRow(group=(0, group), position=position, reward=0.0, step=0)

    for groups, needed in (([1, 1, 2, 2, 3, 3], 3), ([1, 2, 1, 2, 3, 3], 4), ([1, 1, 2, 3, 2, 3], 3)):
        read.clear()
        assert len(next(joined(runs_of((0, group) for group in groups), rows(groups)))) == 2
        assert len(read) == needed


def test_a_group_of_tinker_that_was_sampled_again(tmp_path: Path, printed: Printed) -> None:
    path = logs.tinker(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") * 2, encoding="utf-8")
    out = printed(path)
    assert "4 groups with 6 completions in 1 step (groups: 2 of 1, 2 of 2)." in out
    assert "was sampled again: each sampling is a group (2 groups)" in out


@pytest.mark.parametrize(
    ("kind", "again"), [(REAL / "completions", 1), (REAL / "media" / "table", 2)], ids=["parquet", "wandb"]
)
def test_a_batch_that_is_written_twice_counts_once(kind: Path, again: int, printed: Printed) -> None:
    """TRL 1.16 with two iterations writes each batch twice, and the last table of wandb once more."""
    out = printed(kind)
    assert "8 groups with 32 completions in 2 steps (groups: 8 of 4)." in out
    files = "1 file" if again == 1 else f"{again} files"
    assert f"the same batch written again, and is left out ({files})" in out


def test_a_missing_number_says_why_there_is_no_credit(tmp_path: Path, printed: Printed) -> None:
    rows = [
        {"group": group, "reward": reward, "advantage": advantage}
        for group, reward, advantage in ((1, 0.0, None), (1, 1.0, 0.5), (2, 0.0, -0.5), (2, 1.0, 0.5))
    ]
    path = logs.jsonl(tmp_path / "log.jsonl", rows)
    assert "1 of 2 groups (50.0 %) lack a logged advantage" in printed(
        path, "--fail-on", "dead=0", "--fail-on", "silenced=0"
    )
    # No other normalizer would help, so none is advised.
    rows = [{"group": i // 2, "reward": None if i == 2 else float(i)} for i in range(4)]
    out = printed(logs.jsonl(tmp_path / "log.jsonl", rows))
    assert "It gives none to 2 completions, as to every group that lacks a reward." in out


@pytest.mark.parametrize("build", [logs.verl_v0, logs.tinker, logs.ttt, logs.openevolve, logs.slime])
def test_a_reward_that_no_row_has_is_refused(build: Any, tmp_path: Path, printed: Printed) -> None:
    err = printed(build(tmp_path), "--reward", "nope", code=5)
    assert "reward" in err


@pytest.mark.parametrize("build", [logs.trl, logs.own_records, logs.shinka])
def test_a_reward_is_named_where_there_are_several(build: Any, tmp_path: Path, printed: Printed) -> None:
    """A format that says what the reward is has no use for a name, and would have left it out."""
    assert "one of several is named only for verl," in printed(build(tmp_path), "--reward", "nope", code=2)


def test_scores_and_rewards_of_verl_are_named(tmp_path: Path, printed: Printed) -> None:
    assert "2 of 2 groups (100.0 %) are dead" in printed(logs.verl_v0(tmp_path), "--reward", "acc")
    path = verl_scores(tmp_path / "1", ["0.5", "1", 0.25, "-1e-3"])
    assert "1 group with 4 completions" in printed(path, "--fail-on", "unscored=0", "--fail-on", "flat=0")


def verl_scores(directory: Path, scores: list[Any]) -> Path:
    """A step of verl whose rows have these scores and one prompt."""
    rows = [json.loads(line) for line in logs.verl_v0(directory).read_text(encoding="utf-8").splitlines()]
    given = [row | {"input": "q", "score": one} for row, one in zip(rows, scores, strict=True)]
    return logs.jsonl(directory / "3.jsonl", given)


@pytest.mark.parametrize("score", ["high", "", [1.0], {"all": 1.0}])
def test_a_score_that_is_no_number_is_refused(score: Any, tmp_path: Path, printed: Printed) -> None:
    """One line with the place: as NaN it would have been lost."""
    path = verl_scores(tmp_path, [0.5, 1.0, score, 0.0])
    err = printed(path, code=5)
    assert f"{path}:3:" in err


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


def told(rows: Sequence[dict[str, Any]], place: Path, capsys: Capture) -> str:
    """What the command prints of such a log."""
    assert main(["audit", str(logs.jsonl(place / "own.jsonl", rows))]) == 0
    return capsys.readouterr().out


def test_rows_that_stand_twice_are_said_to(tmp_path: Path, capsys: Capture) -> None:
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
    text = told(own_rows(60, again=[100]), tmp_path, capsys)
    assert "Change: Leave out" not in text
    assert f"1 row stands twice, equal in all that is read: {tmp_path / 'own.jsonl'}:102." in text
    text = told([*own_rows(4), *own_rows(4)], tmp_path, capsys)
    assert "12 rows stand twice" in text
    assert "Change: Leave out the rows that were logged twice" in text


def test_what_was_sampled_twice_is_a_matter_of_sampling(tmp_path: Path, capsys: Capture) -> None:
    rows = own_rows(4)
    rows[1] |= {"reward": 0.0, "response": "0-0"}
    text = told(rows, tmp_path, capsys)
    assert "Change: Raise the sampling temperature, or top_p." in text
    assert "stand" not in text
    text = told([*own_rows(2), {"group": 1, "reward": 9.0, "response": "1-0"}], tmp_path, capsys)
    assert "1 of 7 completions (14 %) repeat another" in text
    assert "stands twice" not in text
