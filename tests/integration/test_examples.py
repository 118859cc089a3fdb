"""Every file of docs/examples as a reader uses it: run, verified and reported from the command line.

One profile names them all, in a copy of the project, into which layer and tables are put as the pages say.
"""

import csv
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.copies import copy_to_change
from tests.forked import NOT_DRAWN, RUNS_FORKED, Commands
from tests.profiles import profile_head

from search_to_signal.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PAGES = [(ROOT / page).read_text(encoding="utf-8") for page in ("docs/extending.md", "CONTRIBUTING.md")]
CONDITION = "my_rewards:improver"
HEAD = profile_head("frozen", CONDITION, groups=2, seed=42)
PROFILE = f"""{HEAD}
jobs = 2
normalizer = "my_normalizer:median_scaled"
learning_rule = "my_rule:policy_gradient"
host = "my_host:HillClimber"

[rule_settings]
rate = 0.02

[host_settings]
width = 2

[generation]
backend = "my_generator:colder"
group_size = 4
max_prompt_tokens = 1024
max_completion_tokens = 320

[learner]
lora_rank = 4
lora_alpha = 8

[[audit]]
problem = "nearest_number:problem"
split = "train"
model = "qwen2-2.1m"
seeds = [42]
groups = 2
"""
ALLOWED = ("--mapping", CONDITION, "--normalizer", "my_normalizer:median_scaled")
ALL_ALLOWED = (*ALLOWED, "--host", "my_host:HillClimber", "--problem", "nearest_number:problem")
S2s = Callable[..., "subprocess.CompletedProcess[str]"]
NAMED = ("my_generator", "my_host", "my_normalizer", "my_rewards", "my_rule", "my_table", "nearest_number")


def put_layer_and_tables(artifact: Path) -> str:
    """Do to a copy of the package what the pages say of a table and of a layer; returns the layer's table."""
    catalogue = artifact / "search_to_signal" / "report" / "tables" / "catalogue.py"
    own = PAGES[0].partition("## A table\n")[2]
    section = PAGES[1].partition("## Adding an evidence layer\n")[2].partition("\n## ")[0]
    (named,) = re.findall(r"```python\n(.*?)```", own, re.DOTALL)
    (setting,) = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)[:1]
    (layers,) = re.findall(r"A layer is a folder of `artifact/([\w/]+)`", section)
    shutil.copytree(EXAMPLES / "repeat", artifact / layers / "repeat")
    text = catalogue.read_text(encoding="utf-8")
    catalogue.write_text(text.replace("OWN: Mapping[str, str] = {}\n", named), encoding="utf-8")
    return setting


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with every example in its place."""
    place = tmp_path_factory.mktemp("project")
    copy_to_change(ROOT / "artifact", place / "artifact", bytecode=True)
    for name in ("uv.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, place / name)
    setting = put_layer_and_tables(place / "artifact")
    for name in NAMED:
        shutil.copy(EXAMPLES / f"{name}.py", place)
    (place / "mine.toml").write_text(PROFILE + setting, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def s2s(project: Path) -> Iterator[S2s]:
    """A command of the copy, where the examples lie; one run of them all is recorded."""
    found = Commands(PYTHONPATH=str(project / "artifact"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        told = found.run("run", "--profile", "mine.toml", "--out", "out", boot=f"{RUNS_FORKED}\n{NOT_DRAWN}")
        assert told.returncode == 0, told.stdout + told.stderr
        yield found.run
    found.close()


def test_every_example_is_run() -> None:
    """A new example has to be named here, or it is run by nobody; logs and hooks are tested with their page.

    The minimal loop, the island host and the rewards of trainers have tests of their own.
    """
    elsewhere = {"__pycache__", "minimal_loop.py", "island_host.py", "trl_reward.py", "verl_reward.py"}
    found = {path.name for path in EXAMPLES.iterdir() if path.suffix not in (".jsonl", ".md")}
    assert found - elsewhere == {"repeat", *(f"{name}.py" for name in NAMED)}


def test_their_results_verify_with_leave_alone(s2s: S2s) -> None:
    """Without leave none of their code runs, and the line says which option gives it; with it all is well."""
    told = s2s("verify", "out")
    assert told.returncode == 1
    assert f"allow it with {' '.join(ALLOWED[:2])}" in told.stdout
    told = s2s("verify", "out", *ALL_ALLOWED, "--recompute")
    assert (told.returncode, "Traceback" in told.stderr) == (0, False), told.stdout + told.stderr


def test_their_results_are_reported(project: Path, s2s: S2s) -> None:
    """Their tables stand on the page, and every number is traced to its records."""
    told = s2s("report", "out", "--out", "again", *ALLOWED, boot=NOT_DRAWN)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "whether equal seeds give equal records" in (project / "again" / "report.html").read_text("utf-8")
    (equal,) = table(project / "again" / "smoke_repeat.csv")
    assert (equal["row"], equal["value"]) == ("frozen-s42", "100.0")
    lengths = table(project / "again" / "smoke_lengths.csv")
    assert {row["row"] for row in lengths} == {"frozen", "frozen-s42", "improver", "my_rewards.improver-s42"}
    assert all(float(row["value"]) > 0 for row in lengths if row["column"] == "Tokens")
    traced = s2s("trace", "out", "repeat", "frozen-s42", "Equal groups (%)")
    assert (traced.returncode, "frozen-s42" in traced.stdout) == (0, True), traced.stderr


@pytest.mark.usefixtures("s2s")
def test_the_audit_leaves_out_what_the_host_cannot_tell(project: Path) -> None:
    """The host gives no exposures, so the mapping that reads them is not asked, and the page says so."""
    audit = project / "out" / "audit"
    said = "have no exposures, which a host need not give: search_exposure."
    assert said in (audit / "audit.md").read_text(encoding="utf-8")
    rows = table(audit / "signal.csv")
    assert {row["mapping"] for row in rows} == {"native", "factorized", "tail_weighted", "distinct"}
    assert {row["groups"] for row in rows if row["problem"] == "all"} == {"6"}


def test_a_mapping_that_reads_exposures_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A host without exposures cannot be trained on it; nothing is begun."""
    monkeypatch.syspath_prepend(EXAMPLES)
    head, _, tail = PROFILE.replace(CONDITION, "search_exposure").partition("[rule_settings]\nrate = 0.02\n")
    lines = [line for line in head.splitlines() if not line.startswith("learning_rule")]
    (tmp_path / "other.toml").write_text("\n".join(lines) + tail, encoding="utf-8")
    assert main(["run", "--profile", str(tmp_path / "other.toml"), "--out", str(tmp_path / "other")]) == 2
    said = capsys.readouterr().err
    assert "conditions has search_exposure" in said
    assert "my_host:HillClimber" in said
    assert not (tmp_path / "other").exists()


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
