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


def run(command: list[str], where: Path, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a program in a directory."""
    whole = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=where, env=whole, capture_output=True, text=True, timeout=300, check=False
    )


def draw(results: Path, where: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Draw one figure of the report in a directory, from a copy of its data."""
    shutil.copy(results / "report" / "figures" / "best_so_far.csv", where.parent)
    return run([sys.executable, "-c", DRAW, str(where.parent / "best_so_far.csv")], where, variables)


def test_no_settings_that_lie_beside_or_that_variables_name_are_read(
    results: Path, latex: Path, tmp_path: Path
) -> None:
    where = tmp_path / "where"
    where.mkdir()
    (where / "matplotlibrc").write_text(FORGED)
    done = draw(results, where, MATPLOTLIBRC=str(where), MPLCONFIGDIR=str(where))
    assert done.returncode == 0, done.stderr
    assert not latex.exists()
    drawn_elsewhere = results / "report" / "figures" / "best_so_far.png"
    assert (tmp_path / "best_so_far.png").read_bytes() == drawn_elsewhere.read_bytes()


def test_tables_are_checked_within_a_prepared_directory(results: Path, latex: Path) -> None:
    """``verify --tables .`` names the planted file as one that is not listed, and does not obey it."""
    planted = results / "matplotlibrc"
    planted.write_text(FORGED)
    undrawn = [sys.executable, "-c", COMMAND.replace("NAMES", '["best_so_far"]'), "verify", "--tables", "."]
    done = run(undrawn, results, {})
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
    done = draw(results, where)
    assert (done.returncode, done.stderr) == (0, "")
