"""s2s audit: conclusions first, files beside each other, exit codes for CI, a log that is followed."""

import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.command import Command
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal.audit.atlas import get_entry
from search_to_signal.audit.importers import FORMATS, USUAL
from search_to_signal.audit.live import Following
from search_to_signal.base.processes import command_line
from search_to_signal.cli import main

WITH_SELF = "nemo-grpo-with-self"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two groups in two steps: one dead, one with a class that takes all the credit."""
    rows = [
        {"group": group, "step": group, "reward": reward, "advantage": advantage, "label": label}
        for group, reward, advantage, label in (
            (1, 0.5, 0.0, "easy"),
            (1, 0.5, 0.0, "easy"),
            (2, 0.0, -0.5, "easy"),
            (2, 1.0, 0.5, "<hard>"),
        )
    ]
    return logs.jsonl(tmp_path / "log.jsonl", rows)


def test_verdicts_come_first_and_tables_after(
    log: Path, printed: Printed, s2s: Command, tmp_path: Path
) -> None:
    out = printed(log)
    assert out.index("1 of 2 groups (50.0 %) are dead") < out.index("normalizer  ")
    assert f"{log}:1, step 1" in out
    assert "explained bit for bit by" in out
    said = s2s("audit", log, "--json")
    assert json.loads(said.out)["groups"] == 2
    said = s2s("audit", logs.trl(tmp_path).parent)
    assert "Assumed: a group is a run of rows with the same prompt" in (out := said.out)
    assert "(2 groups, 2 groups of 2)" in out


@pytest.mark.parametrize(("limit", "code"), [("dead=0.4", 1), ("dead=0.5", 0), ("merged=0", 0)])
def test_a_limit_decides_the_exit_code(log: Path, limit: str, code: int, s2s: Command) -> None:
    said = s2s("audit", log, "--fail-on", limit, code=code)
    assert ("FAILED: the share of dead is 0.5000" in said.err) == bool(code)


@pytest.mark.parametrize("limit", ["dead", "dead=x", "deaf=0.5", "dead=2", "dead=nan"])
def test_a_limit_that_is_none_is_refused(log: Path, limit: str, s2s: Command) -> None:
    said = s2s("audit", log, "--fail-on", limit, code=2)
    assert said.err.count("\n") == 1


def test_files_stand_beside_each_other(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["audit", str(log), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "audit.html",
        "audit.json",
        "groups",
        "groups.csv",
        "normalizers.csv",
        "steps.csv",
    ]
    document = json.loads((out / "audit.json").read_text(encoding="utf-8"))
    assert document["counts"]["dead"] == 1
    assert document["agreements"]["trl-grpo-none"]["apart"] == 0.0
    page = (out / "audit.html").read_text(encoding="utf-8")
    assert page.index("are dead") < page.index("<table")
    assert "&lt;hard&gt;" in page
    assert "<hard>" not in page
    assert "src=" not in page
    with (out / "steps.csv").open(encoding="utf-8") as lines:
        assert [row["dead"] for row in csv.DictReader(lines)] == ["1", "0"]


def test_numbers_and_names_that_are_none_end_in_no_traceback(tmp_path: Path, printed: Printed) -> None:
    rows = [{"group": 1, "reward": None, "label": "\ud800"}, {"group": 2, "reward": 1.0, "advantage": 1.0}]
    rows = [rows[0], rows[1] | {"label": "\ud801"}]
    path = logs.jsonl(tmp_path / "x.jsonl", rows)
    assert main(["audit", str(path), "--out", str(tmp_path / "out")]) == 0
    said = printed(logs.jsonl(path, rows[:1]), "--json")
    document = json.loads(said[said.index("{") :], parse_constant=lambda name: pytest.fail(name))
    assert document["steps"][0]["mean_reward"] is None


@pytest.mark.parametrize(
    ("text", "code"),
    [('{"group": 1, "reward": 1.0}\n{"group"\n', 5), ("", 5), ('{"colour": "red"}\n', 5), ('{"gr', 5)],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    text: str, code: int, tmp_path: Path, s2s: Command
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text, encoding="utf-8")
    said = s2s("audit", path, "--out", tmp_path / "out", code=code)
    out, err = said.out, said.err
    assert (out, err.count("\n")) == ("", 1)
    assert str(path) in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options", [["--normalizer", "nothing"], ["--format", "nothing"], ["--group-size", "0"]]
)
def test_a_name_that_is_none_is_refused(options: list[str], log: Path, s2s: Command) -> None:
    said = s2s("audit", log, *options, code=2)
    assert said.err.count("\n") == 1


def test_squares_that_cancel_are_recognized(tmp_path: Path, printed: Printed) -> None:
    """Advantages that NeMo-RL's own code gives a tight and a wide group are explained by its entry alone."""
    source = Path(__file__).parents[3] / "spec" / "vectors" / "atlas" / "nemo.json"
    cases = json.loads(source.read_text(encoding="utf-8"))["cases"]
    (case,) = [one for one in cases if (one["entry"], one["case"]) == (WITH_SELF, "tight beside varied")]
    rewards = [(group, reward) for group, row in enumerate(case["groups"]) for reward in row]
    rows = [
        {"group": group, "reward": reward, "advantage": advantage}
        for (group, reward), advantage in zip(rewards, case["float32"], strict=True)
    ]
    assert f"by {WITH_SELF}.\n" in printed(logs.jsonl(tmp_path / "x.jsonl", rows))


def test_usual_normalizers_exist() -> None:
    assert set(USUAL) <= {one.name for one in FORMATS}
    assert all(get_entry(name) for name in USUAL.values())


@pytest.mark.slow
def test_help_loads_nothing_slow() -> None:
    code = (
        "import sys\nfrom search_to_signal.cli import main\n"
        "try: main(['audit', '--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'pyarrow', 'jinja2', 'torch'} & set(sys.modules)))"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said.splitlines()[-1] == "[]"
    assert "example: s2s audit" in said


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
def test_a_time_that_is_none_is_refused(every: str, tmp_path: Path, s2s: Command) -> None:
    said = s2s("audit", tmp_path, "--follow", "--every", every, code=2)
    assert said.err.count("\n") == 1


def test_what_cannot_be_followed_is_said(tmp_path: Path, s2s: Command) -> None:
    (tmp_path / "a.jsonl").write_text('{"points": 1.0}\n', encoding="utf-8")
    (line,) = Following(tmp_path).look()
    assert "--map reward=COLUMN,group=COLUMN" in line
    said = s2s("audit", tmp_path / "nowhere", "--follow", code=5)
    assert said.err.count("\n") == 1
