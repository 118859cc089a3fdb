"""What docs/adding.md says of a new evidence layer is done, word for word, to a copy of the project."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.copies import copy_to_change

ROOT = Path(__file__).parents[2]
PROFILE = """purpose = "smoke"
problem = "tsp"
split = "embedded"
model = "qwen2-2.1m"
conditions = ["frozen"]
seeds = [42]
groups = 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project with the layer of the page in it."""
    page = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8").partition("## An evidence layer")[2]
    entry, module, table = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:3]
    (setting,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[:1]
    (registry,) = re.findall(r"`artifact/([\w/]+\.py)`", page)[:1]
    place, tables = (
        f"{place}/{name}" for name, place in re.findall(r"`(\w+\.py)` in `artifact/([\w/]+)`", page)
    )
    copy_to_change(ROOT / "artifact", tmp_path / "artifact")
    for name in ("uv.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    package = tmp_path / "artifact"
    text = (package / registry).read_text(encoding="utf-8")
    head, end, tail = text.partition("\n)\n")
    (package / registry).write_text(f"{head}\n{entry}{end.lstrip()}{tail}", encoding="utf-8")
    (package / place).write_text(module, encoding="utf-8")
    (package / tables).write_text(table, encoding="utf-8")
    catalogue = (package / tables).with_name("catalogue.py")
    text = catalogue.read_text(encoding="utf-8")
    line = "BUILDERS: Mapping[str, Builder] = {\n"
    made = "from search_to_signal.analysis.tables.repeat import repeat\n\n"
    catalogue.write_text(text.replace(line, f'{made}{line}    "repeat": repeat,\n'), encoding="utf-8")
    (tmp_path / "mine.toml").write_text(PROFILE + setting, encoding="utf-8")
    return tmp_path


def s2s(project: Path, *arguments: str) -> str:
    """What a command of the copy prints; it has to succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "search_to_signal.cli", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "artifact")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_layer_added_as_the_page_says_runs_and_is_reported(project: Path) -> None:
    """One entry, one module and one table: it runs, verifies, and stands on the page with its claim."""
    s2s(project, "run", "--profile", "mine.toml", "--out", "out", "--layer", "cohort", "--layer", "repeat")
    assert s2s(project, "verify", "out")
    table = (project / "out" / "report" / "smoke_repeat.csv").read_text(encoding="utf-8")
    assert "100" in table.splitlines()[1]
    page = (project / "out" / "report" / "report.html").read_text(encoding="utf-8")
    assert "whether equal seeds give equal records" in page
    assert "frozen-s42" in s2s(project, "trace", "out", "repeat", "frozen-s42", "Equal groups (%)")
