"""Figures are drawn with our own settings, whatever lies where a command is given."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.drawing import COMMAND, drawn

from search_to_signal.cli import main
from search_to_signal.records.checksums import seal
from search_to_signal.records.provenance import source

pytestmark = pytest.mark.slow

DRAW = """
import sys
from pathlib import Path
from search_to_signal.report.figures import PLOTS
from search_to_signal.report.figures.plot import redraw
redraw(next(plot for plot in PLOTS if plot.name == "best_so_far"), Path(sys.argv[1]))
"""
FORGED = "text.usetex: True\ntext.latex.preamble: \\input{/etc/passwd}\naxes.facecolor: red\nfont.size: 30\n"


@pytest.fixture(scope="module", autouse=True)
def drawings() -> Iterator[None]:
    """One figure is drawn: these tests look at it."""
    with drawn("best_so_far"):
        yield


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small cohort of this source with its report, sealed."""
    root = tmp_path_factory.mktemp("settings") / "results"
    for seed in (1, 2):
        for condition in ("frozen", "native"):
            write_synthetic_run(root / "cohort" / f"{condition}-s{seed}", condition, seed, source=source())
    assert main(["report", str(root)]) == 0
    seal(root, "a study")
    return root


@pytest.fixture
def latex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there as soon as somebody starts latex."""
    started = tmp_path / "started"
    program = tmp_path / "bin" / "latex"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return started


def run(where: Path, code: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in a directory."""
    command, env = [sys.executable, "-c", code, *arguments], {**os.environ, **variables}
    return subprocess.run(
        command, cwd=where, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def test_no_settings_that_lie_beside_or_that_variables_name_are_read(results: Path, latex: Path) -> None:
    """``verify --tables .`` names the planted file as one that is not listed, and draws as it is recorded."""
    planted = results / "matplotlibrc"
    planted.write_text(FORGED)
    one_drawn, variables = COMMAND.replace("NAMES", '["best_so_far"]'), ("MATPLOTLIBRC", "MPLCONFIGDIR")
    done = run(results, one_drawn, "verify", "--tables", ".", **dict.fromkeys(variables, str(results)))
    planted.unlink()
    assert not latex.exists()
    assert "PROBLEM matplotlibrc: not listed in SHA256SUMS" in done.stdout
    assert "tables not compared" not in done.stdout
    assert "best_so_far" not in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("kind", ["pipe", "bytes"])
def test_settings_of_no_text_are_not_read(results: Path, tmp_path: Path, kind: str) -> None:
    """A pipe of that name would never end, and bytes that are no text would be a traceback."""
    where = tmp_path / "where"
    where.mkdir()
    if kind == "pipe":
        os.mkfifo(where / "matplotlibrc")
    else:
        (where / "matplotlibrc").write_bytes(b"\xff\xfe\x00")
    shutil.copy(results / "report" / "figures" / "best_so_far.csv", tmp_path)
    done = run(where, DRAW, str(tmp_path / "best_so_far.csv"))
    assert (done.returncode, done.stderr) == (0, "")
