"""s2s audit: conclusions on a terminal, files beside each other, exit codes for use in CI."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal.audit.atlas import get_entry
from search_to_signal.audit.importers import FORMATS, USUAL
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


def test_verdicts_come_first_and_tables_after(log: Path, printed: Printed) -> None:
    out = printed(log)
    assert out.index("1 of 2 groups (50.0 %) are dead") < out.index("normalizer  ")
    assert f"{log}:1, step 1" in out
    assert "explained bit for bit by" in out


def test_assumptions_are_printed_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(logs.trl(tmp_path).parent)]) == 0
    assert "Assumed: a group is a run of rows with the same prompt" in (out := capsys.readouterr().out)
    assert "(2 groups, 2 groups of 2)" in out


@pytest.mark.parametrize(("limit", "code"), [("dead=0.4", 1), ("dead=0.5", 0), ("merged=0", 0)])
def test_a_limit_decides_the_exit_code(
    log: Path, limit: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(log), "--fail-on", limit]) == code
    assert ("FAILED: the share of dead is 0.5000" in capsys.readouterr().err) == bool(code)


@pytest.mark.parametrize("limit", ["dead", "dead=x", "deaf=0.5", "dead=2", "dead=nan"])
def test_a_limit_that_is_none_is_refused(log: Path, limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(log), "--fail-on", limit]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_files_stand_beside_each_other(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["audit", str(log), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "audit.html",
        "audit.json",
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


def test_json_is_json_alone(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == 2


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
    text: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text, encoding="utf-8")
    assert main(["audit", str(path), "--out", str(tmp_path / "out")]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert str(path) in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options", [["--normalizer", "nothing"], ["--format", "nothing"], ["--group-size", "0"]]
)
def test_a_name_that_is_none_is_refused(
    options: list[str], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(log), *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


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
