"""The report: the same bytes every time, and smoke runs that cannot be taken for results."""

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from search_to_signal.analysis.report import LAYERS, report

Make = Callable[..., Path]
FORMS = ("csv", "md", "tex")


def cohort(make_run: Make, directory: Path, purpose: str = "formal") -> Path:
    """Two conditions with two seeds each."""
    for condition in ("frozen", "native"):
        for seed in (1, 2):
            run = directory / f"{condition}-s{seed}"
            make_run(run, condition, seed, shift=0.01 * seed, config={"purpose": purpose})
    return directory


def written(directory: Path) -> dict[str, bytes]:
    """Every file of a report."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_equal_records_give_equal_bytes(make_run: Make, tmp_path: Path) -> None:
    """Tables, figures and page are the same bytes when made again, in another process too."""
    runs = cohort(make_run, tmp_path / "runs")
    report(runs, tmp_path / "first")
    report(runs, tmp_path / "second")
    code = (
        "import sys; from pathlib import Path; from search_to_signal.analysis.report import report;"
        "report(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    other = {**os.environ, "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1"}
    subprocess.run([sys.executable, "-c", code, str(runs), str(tmp_path / "third")], check=True, env=other)
    first = written(tmp_path / "first")
    assert first == written(tmp_path / "second") == written(tmp_path / "third")
    assert {f"core_results.{form}" for form in FORMS} | {"best_so_far.pdf", "best_so_far.png"} <= set(first)


def test_smoke_runs_get_smoke_tables_only(make_run: Make, tmp_path: Path) -> None:
    """A smoke run's tables bear its name, and its page says that it is no evidence."""
    page = report(cohort(make_run, tmp_path / "runs", "smoke"), tmp_path / "out")
    tables = {name for name in written(tmp_path / "out") if name.endswith((".tex", ".md")) and "_" in name}
    assert tables
    assert all(name.startswith("smoke_") for name in tables)
    text = page.read_text(encoding="utf-8")
    assert "no evidence" in text
    assert "ran at embedded scale" not in text


def test_the_page_says_what_has_not_run(make_run: Make, tmp_path: Path) -> None:
    """Every evidence layer is listed; a cohort alone is also a replay of its groups."""
    text = report(cohort(make_run, tmp_path / "runs"), tmp_path / "out").read_text(encoding="utf-8")
    states = {layer: f"| {layer} | has not run |" in text for layer in LAYERS.values()}
    assert [layer for layer, missing in states.items() if not missing] == [
        "Normalizer replay",
        "Formal live cohort",
    ]
    assert "| Formal live cohort | ran at embedded scale |" in text
    assert "confirm none" in text
    assert "no evidence" not in text


def test_the_figure_lies_beside_its_data(make_run: Make, tmp_path: Path) -> None:
    """The curve's CSV holds every group of every run, with all digits."""
    report(cohort(make_run, tmp_path / "runs"), tmp_path / "out")
    heading, *rows = csv.reader((tmp_path / "out" / "best_so_far.csv").read_text().splitlines())
    assert heading == ["condition", "seed", "group", "best_so_far"]
    assert len(rows) == 2 * 2 * 4
    assert rows[0][:3] == ["frozen", "1", "1"]
    assert float(rows[3][3]) == pytest.approx(-7 + 4 * 0.11)


def test_shares_of_time_are_shown(make_run: Make, tmp_path: Path) -> None:
    """Each run's speed and the shares of its phases stand on the page."""
    text = report(cohort(make_run, tmp_path / "runs"), tmp_path / "out").read_text(encoding="utf-8")
    assert "| native-s2 | 30.0 | 50.0 | 25.0 | 12.5 | 12.5 |" in text
