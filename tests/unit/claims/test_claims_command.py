"""s2s claims: verdicts in seconds without any run, and an exit code that tells a finding from damage."""

import csv
import io
from pathlib import Path

import pytest
from tests.copies import copy_to_change

from search_to_signal.claims import coverage, ledger, tables
from search_to_signal.claims.ledger import load_ledger
from search_to_signal.cli import main


def test_a_fresh_clone_is_judged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The summary counts what the CSV lists, and the page names every layer with its strongest claim."""
    assert main(["claims", "--out", str(tmp_path)]) == 0
    summary = capsys.readouterr().out.splitlines()[-1]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "claims.csv").read_text(encoding="utf-8"))))
    assert summary.startswith(f"s2s: {len(rows)} entries: ")
    for verdict in {row["verdict"] for row in rows}:
        assert f"{sum(row['verdict'] == verdict for row in rows)} {verdict}" in summary
    page, ledger = (tmp_path / "claims.md").read_text(encoding="utf-8"), load_ledger()
    assert all(ledger.strongest_claim(name) in page for name in ledger.layers)


def test_output_is_the_same_every_time(tmp_path: Path) -> None:
    """Two runs write the same bytes."""
    texts = []
    for name in ("one", "two"):
        assert main(["claims", "--out", str(tmp_path / name)]) == 0
        texts.append([(tmp_path / name / file).read_bytes() for file in ("claims.csv", "claims.md")])
    assert texts[0] == texts[1]


def test_results_without_a_report_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One line says to run the report first."""
    assert main(["claims", "--results", str(tmp_path)]) != 0
    assert "run s2s report first" in capsys.readouterr().err


def test_another_document_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A document with other numbers than the checked-in list fails, naming them."""
    path = tmp_path / "paper.tex"
    path.write_text("\\begin{document}\nA gain of 12.5 points.\n")
    assert main(["claims", "--document", str(path)]) == 1
    said = capsys.readouterr().out
    assert "PROBLEM the document is not the one of index.toml" in said
    assert "line 2, column 11: 12.5" in said
    assert main(["claims", "--document", str(tmp_path / "missing.tex")]) == 2


def test_damage_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A published table that was changed ends the command before any verdict is printed."""
    directory = copy_to_change(tables.PUBLISHED, tmp_path / "published")
    text = (directory / "core_results.csv").read_text(encoding="utf-8")
    (directory / "core_results.csv").write_text(text.replace("-6.2090", "-6.2091"), encoding="utf-8")
    for module, function in ((ledger, "load_ledger"), (coverage, "load_numbers")):
        original = getattr(module, function)
        monkeypatch.setattr(module, function, lambda original=original: original(directory))
    assert main(["claims"]) != 0
    out, err = capsys.readouterr()
    assert "tab:core-results: line 217 has -6.2090, the published table -6.2091" in err
    assert out == ""
