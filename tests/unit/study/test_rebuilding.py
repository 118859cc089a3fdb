"""What ships is made again from its records: equal, or named with both values, and partial where it is."""

import shutil
from html import unescape
from pathlib import Path

import pytest
from tests.command import Command

from search_to_signal.claims.tables import load_reports
from search_to_signal.cli import main
from search_to_signal.report.figures.cohort import UNPAIRED
from search_to_signal.report.figures.plot import CsvFrame
from search_to_signal.study.container import list_evidence
from search_to_signal.study.rebuilding import table_differences

pytestmark = pytest.mark.slow

CONDITIONS = ("frozen", "native")


def test_equal_tables_are_ok(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    out = s2s("rebuild", shipped, "--out", tmp_path / "out").out
    page = tmp_path / "out" / "report" / "evidence.html"
    assert out.splitlines()[-1] == f"s2s: OK: 0 problems; open {page}"
    assert 'href="../main/report.html"' in page.read_text()
    assert (tmp_path / "out" / "main" / "report.html").is_file()
    assert "PARTIAL" not in page.read_text()
    assert "PARTIAL" not in (page.parent / "claims" / "claims.md").read_text()


def test_a_changed_table_has_both_values(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    table = evidence / "main" / "report" / "core_results.csv"
    lines = table.read_text().splitlines()
    row, column, value, spread, n = lines[1].split(",")
    table.write_text("\n".join([lines[0], f"{row},{column},-1.5,{spread},{n}", *lines[2:]]) + "\n")
    list_evidence(evidence)
    out = s2s("rebuild", evidence, "--out", tmp_path / "out", code=1).out
    assert f"main/report/core_results.csv: {row} / {column}, value: shipped -1.5 | rebuilt {value}" in out
    assert out.splitlines()[-1].startswith("s2s: FAILED: 1 problem;")


def test_shipping_again_leaves_what_differs_in_last_bits_alone(shipped: Path, tmp_path: Path) -> None:
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    report = evidence / "main" / "report"
    names = ("core_results.csv", "signal.csv", "normalizer_values.csv")
    recorded, changed, lacking = (report / name for name in names)
    lines = recorded.read_text().splitlines()
    row, column, value, spread, n = lines[1].split(",")
    rounded = "\n".join([lines[0], f"{row},{column},{float(value) * (1 + 1e-15)!r},{spread},{n}", *lines[2:]])
    before = {path: path.read_bytes() for path in (changed, lacking)}
    recorded.write_text(rounded)
    changed.write_text("another,table\n")
    lacking.unlink()
    (report / "stray.csv").write_text("row\n")
    list_evidence(evidence)
    assert main(["rebuild", str(evidence), "--out", str(tmp_path / "made"), "--ship"]) == 0
    assert recorded.read_text() == rounded != "\n".join(lines)
    assert {path: path.read_bytes() for path in before} == before
    assert not (report / "stray.csv").exists()


def test_a_missing_run_makes_tables_and_course_partial(shipped: Path, tmp_path: Path, s2s: Command) -> None:
    evidence = Path(shutil.copytree(shipped, tmp_path / "evidence"))
    shutil.rmtree(evidence / "main" / "cohort" / "native-s3")
    list_evidence(evidence)
    out = s2s("rebuild", evidence, "--out", tmp_path / "out", code=1).out
    assert "main: cohort PARTIAL: 5 of 6 planned runs are there" in out
    assert "PARTIAL: 5 of 6" in (tmp_path / "out" / "main" / "report.md").read_text()
    assert "PARTIAL: 5 of 6" in (tmp_path / "out" / "main" / "core_results.md").read_text()
    mark = (
        "main: cohort PARTIAL: 5 of 6 planned runs are there: until the rest is recorded, no direction "
        "of our estimates is decided"
    )
    assert mark in (tmp_path / "out" / "report" / "claims" / "claims.md").read_text()
    assert mark in s2s("claims", "--results", evidence, "--out", tmp_path / "claims").out.splitlines()
    assert mark in (tmp_path / "claims" / "claims.md").read_text()
    assert ",2\n" in (tmp_path / "out" / "main" / "core_results.csv").read_text()
    assert "n = 2 of 3 planned: partial: no verdict" in (tmp_path / "out/report/evidence.md").read_text()
    told = s2s("trace", evidence / "main", "core_results", "native", "Final best").out
    assert "cohort/native-s2/completions.jsonl" in told
    # In the course a condition has its own seeds.
    made = shipped.parent / "made"
    whole, course = (
        CsvFrame.read((place / "main/figures/course.csv").read_text()) for place in (made, tmp_path / "out")
    )
    assert course.where(condition="frozen") == whole.where(condition="frozen")
    assert course.where(condition="native").names("seed") == ["1", "2"]
    for seed in ("1", "2"):
        assert course.where(seed=seed) == whole.where(seed=seed)
    tables = (tmp_path / "out" / "main" / "core_seeds.csv").read_text()
    assert "frozen-s2" in tables
    assert "frozen-s3" not in tables
    for page in ("main/report.html", "report/evidence.html"):
        assert UNPAIRED in unescape((tmp_path / "out" / page).read_text())
        assert UNPAIRED not in unescape((made / page).read_text())


def test_trace_and_claims_read_it(shipped: Path, s2s: Command) -> None:
    said = s2s("trace", shipped / "main", "core_results", "native", "Final best", "--show", "1")
    assert "cohort/native-s1/completions.jsonl" in said.out
    said = s2s("trace", shipped, "outcomes", "main.q/native minus frozen", "Estimate")
    assert "main/cohort/frozen-s1/completions.jsonl" in said.out
    assert "core_results" in load_reports(shipped).tables
    said = s2s("claims", "--results", shipped)
    assert " same direction, " in said.out.splitlines()[0]


@pytest.mark.parametrize("below", ["", "main", "report"])
def test_claims_are_not_made_of_what_was_made(shipped: Path, below: str, s2s: Command) -> None:
    made = shipped.parent / "made"
    (line,) = s2s("claims", "--results", made / below, code=2).err.splitlines()
    assert f"in {made / 'report' / 'claims' / 'claims.md'}" in line
    assert "give --results the evidence" in line


def test_lines_of_one_name_are_all_compared(tmp_path: Path) -> None:
    for folder, value in (("one", 1.0), ("other", 2.0)):
        (tmp_path / folder).mkdir()
        text = f"row,column,value,spread,n\na,b,{value},,3\na,b,5.0,,3\n"
        (tmp_path / folder / "t.csv").write_text(text)
    found = list(table_differences(tmp_path / "one", tmp_path / "other"))
    assert found == ["t.csv: a / b, value: shipped 1.0 | rebuilt 2.0"]
