"""A checkout that is another host is refused before its code runs: file, fact, exit code 12, and no trace."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command import Capture, Command, Patch
from tests.unit.search.hosts.mutants import texts_of

from search_to_signal.cli import main
from search_to_signal.search.hosts.released.checkout import pinned

pytestmark = pytest.mark.slow

Sabotage = Callable[[str, str, str], Path]
COMMAND = ["conformance", "--problem", "obp", "--check", "data", "--calm"]

CHANGES = {
    "a method gone": ("calm_trainer.py", "def ⟦reward_func→other⟧", "defines no Trainer.reward_func"),
    "a class gone": ("heuristic.py", "class ⟦HeuristicPolicy→Policy⟧", "defines no class HeuristicPolicy"),
    "another name": (
        "calm_trainer.py",
        "reward_func(self, prompts, ⟦completions→answers⟧",
        "takes (prompts, answers)",
    ),
    "one argument less": ("heuristic.py", "(self, instances⟦, timeout=TIME_LIMIT_S→⟧)", "takes (instances)"),
    "one argument more": ("calm_trainer.py", "prepare_dataset(self⟦→, step⟧)", "takes (step)"),
    "the old constructor": (
        "heuristic.py",
        "(self, ⟦step_func, name, problem_name→code, idea⟧)",
        "takes (code, idea)",
    ),
    "another evaluation": (
        "problems/obp.py",
        "run_async(self, policy⟦, instances→⟧)",
        "Environment.run_async takes (policy)",
    ),
    "an option gone": ("args.py", "    ⟦speed_collapse→speed⟧", "Args has no field speed_collapse"),
    "no Python": ("heuristic.py", "def ⟦run_one→(⟧", "cannot be read as Python"),
}


def refused(path: Path, capsys: Capture) -> str:
    """The one line by which the command refuses a checkout."""
    assert main([*COMMAND, str(path)]) == 12
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


@pytest.mark.parametrize(("file", "change", "fact"), CHANGES.values(), ids=CHANGES)
def test_another_signature(sabotaged: Sabotage, capsys: Capture, file: str, change: str, fact: str) -> None:
    line = refused(sabotaged(file, *texts_of(change)), capsys)
    assert file in line
    assert fact in line


@pytest.mark.parametrize(
    "name", ["utils.py", "heuristic.py", "main.py", "problems/obp.py", "configs/obp/local.yaml"]
)
def test_a_missing_file(calm: Path, capsys: Capture, name: str) -> None:
    (calm / name).unlink()
    assert f"{name} is missing" in refused(calm, capsys)


def test_another_directory(tmp_path: Path, capsys: Capture) -> None:
    assert "args.py is missing" in refused(tmp_path, capsys)
    assert f"there is no directory {tmp_path / 'nowhere'}" in refused(tmp_path / "nowhere", capsys)


def test_what_was_fetched(calm: Path, tmp_path: Path, capsys: Capture) -> None:
    made = tmp_path / "fetched"
    made.mkdir()
    calm.rename(made / "source")
    assert f"give {made / 'source'}" in refused(made, capsys)
    released = [
        "released",
        "--calm",
        str(made),
        "--config",
        "configs/obp/local.yaml",
        "--out",
        str(tmp_path / "o"),
    ]
    assert main(released) == 12
    assert f"give {made / 'source'}" in capsys.readouterr().err
    assert main([*COMMAND, str(made / "source")]) != 12


@pytest.mark.parametrize(
    ("package", "what"),
    [("ray", "uv sync --extra cluster"), ("nowhere_to_be_found", "install nowhere_to_be_f")],
)
def test_a_missing_package(
    sabotaged: Sabotage, monkeypatch: Patch, s2s: Command, package: str, what: str
) -> None:
    """It is named, with what to do, for a problem that cannot be compared without it."""
    monkeypatch.setitem(sys.modules, package, None)
    calm = sabotaged("heuristic.py", "import copy\n", f"import copy\nimport {package}\n")
    line, _ = s2s(*COMMAND, calm, code=11).out.splitlines()
    assert f"does not import here (ModuleNotFoundError: import of {package} halted" in line
    assert what in line


def clone(calm: Path, head: str, **files: str) -> None:
    """Make a checkout look like a clone."""
    (calm / ".git" / "refs" / "heads").mkdir(parents=True)
    (calm / ".git" / "HEAD").write_text(head)
    for name, text in files.items():
        (calm / ".git" / name.replace("__", "-")).write_text(text)


@pytest.mark.parametrize("packed", [False, True])
def test_another_revision(calm: Path, capsys: Capture, packed: bool) -> None:
    commit = f"{'0' * 40}\n"
    if packed:
        clone(calm, "ref: refs/heads/master\n", packed__refs=f"# pack\n{'0' * 40} refs/heads/master\n")
    else:
        clone(calm, commit)
    line = refused(calm, capsys)
    assert f"HEAD: the checkout is at 000000000000, the pinned revision is {pinned()}" in line
    assert main([*COMMAND, str(calm), "--any-revision"]) != 12
    (calm / ".git" / "HEAD").write_text(f"{pinned()}{'0' * 28}\n")
    assert main([*COMMAND, str(calm)]) != 12


def test_another_fetched_revision(calm: Path, capsys: Capture) -> None:
    (calm.parent / "REVISION").write_text(f"{'1' * 40}\n")
    assert "REVISION: the checkout is at 111111111111" in refused(calm, capsys)


def test_nothing_is_left_behind(
    sabotaged: Sabotage, monkeypatch: Patch, tmp_path: Path, capsys: Capture
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    calm = sabotaged("problems/obp.py", "import math", "import math")
    for change in ("", "import a_package_that_is_not_here\n", "def ("):
        trainer = calm / "calm_trainer.py"
        trainer.write_text(change + trainer.read_text(encoding="utf-8"), encoding="utf-8")
        files = sorted(calm.rglob("*"))
        before = os.getcwd(), list(sys.path), {name: id(module) for name, module in sys.modules.items()}
        main([*COMMAND, str(calm)])
        after = os.getcwd(), list(sys.path), {name: id(module) for name, module in sys.modules.items()}
        assert (sorted(calm.rglob("*")), list(temporary.iterdir())) == (files, [])
        assert after[:2] == before[:2]
        assert {"calm_trainer", "heuristic", "args", "utils", "problems"} & set(after[2]) == set()
        assert before[2].items() <= after[2].items()
    assert "a_package_that_is_not_here" in capsys.readouterr().out
