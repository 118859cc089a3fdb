"""A log that is being written: steps in lines as they come, the page kept up to date, a report at the end."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from search_to_signal.audit.live import Following
from search_to_signal.base.processes import command_line
from search_to_signal.cli import main


def rows(step: int, *rewards: float) -> str:
    """A group of each two rewards, as lines of the neutral form."""
    made = [
        {"group": f"{step}-{at // 2}", "step": step, "reward": reward} for at, reward in enumerate(rewards)
    ]
    return "".join(json.dumps(row) + "\n" for row in made)


def test_a_step_is_told_once_and_again_when_it_grows(tmp_path: Path) -> None:
    log = Following(tmp_path)
    assert [line.split(":")[0] for line in log.look()] == ["not read yet"]
    assert log.look() == []
    path = tmp_path / "rollouts_1.jsonl"
    path.write_text(rows(1, 0, 1, 1, 1), encoding="utf-8")
    assert log.look() == []
    assert log.look() == [
        "step 1: 2 groups, 4 completions, 50.0% of groups dead, effective batch 2, largest gain 1.414"
    ]
    assert log.look() == []
    path.write_text(rows(1, 0, 1, 1, 1) + rows(2, 1, 1), encoding="utf-8")
    log.look()
    assert [line.split(":")[0] for line in log.look()] == ["step 2"]


def test_a_line_that_is_half_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    whole = rows(1, 0, 1) + rows(2, 1, 1)
    path.write_text(whole[:-9], encoding="utf-8")
    log = Following(tmp_path)
    log.look()
    assert [line.split(",")[1] for line in log.look()] == [" 2 completions", " 1 completions"]
    assert log.look() == []
    path.write_text(whole, encoding="utf-8")
    log.look()
    assert [line.split(":")[0] for line in log.look()] == ["step 2"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Any]:
    """The command on a directory that is empty at first."""
    (tmp_path / "log").mkdir()
    arguments = (
        "audit",
        str(tmp_path / "log"),
        "--follow",
        "--every",
        "0.05",
        "--out",
        str(tmp_path / "out"),
    )
    process = subprocess.Popen(
        command_line(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job starts with SIGINT ignored, and the tests may be one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_the_command_follows_until_it_is_interrupted(command: Any, tmp_path: Path) -> None:
    assert command.stdout.readline().startswith("not read yet: ")
    for step in (1, 2):
        text = rows(step, 0, 1, 1, 1)
        # Whole at once: a file that is empty for a while would be told as not read yet.
        (tmp_path / "whole").write_text(text, encoding="utf-8")
        (tmp_path / "whole").rename(tmp_path / "log" / f"rollouts_{step}.jsonl")
        assert command.stdout.readline().startswith(f"step {step}: 2 groups")
    page = tmp_path / "out" / "audit.html"
    end = time.monotonic() + 60.0
    while not page.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    command.send_signal(signal.SIGINT)
    said, err = command.communicate(timeout=120)
    assert (command.returncode, err) == (0, "")
    assert "4 groups with 8 completions in 2 steps" in said


@pytest.mark.parametrize("every", ["0", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(
    every: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(tmp_path), "--follow", "--every", every]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_nobody_can_read_is_told_while_it_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"points": 1.0}\n', encoding="utf-8")
    (line,) = Following(tmp_path).look()
    assert "--map reward=COLUMN,group=COLUMN" in line


def test_a_place_that_is_not_there_is_no_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(tmp_path / "nowhere"), "--follow"]) == 5
    assert capsys.readouterr().err.count("\n") == 1
