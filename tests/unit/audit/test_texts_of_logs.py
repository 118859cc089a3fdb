"""Texts of a log where people meet them: a terminal, the page, a spreadsheet."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal.audit import report
from search_to_signal.audit.findings import audit
from search_to_signal.audit.importers import FORMATS, read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.live import Following
from search_to_signal.audit.report import GroupTable

# Markup, a way to run code, a formula, what moves a cursor or turns the writing around, half a character.
ODD = {
    **{"script": "</script><script>alert(1)</script>", "link": "javascript:alert(1)", "event": '" onload="x'},
    **{"formula": "=1+1", "cursor": "\x1b[2J\r\n", "turned": "\u202e"},
    **{"half": "\ud800", "huge": "x" * 2_000_000},
}


def rows(text: Any) -> list[dict[str, Any]]:
    """Two groups, one of them dead, named and labelled by a text."""
    same = {"step": 1, "label": text, "prompt": text, "status": text}
    return [{"group": f"{text}{at // 2}", "reward": float(at == 1), **same} for at in range(4)]


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_no_text_leaves_its_place(text: str, tmp_path: Path, printed: Printed) -> None:
    path = logs.jsonl(tmp_path / "a.jsonl", rows(text))
    out = printed(path, "--class", "label", "--out", str(tmp_path / "out"))
    page = (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    assert all(character.isprintable() or character == "\n" for character in out)
    assert len(out) + len(page) < 100_000
    assert "<script" not in page
    assert 'onload="x' not in page
    assert "\x1b" not in page + out
    assert 'href="javascript' not in page


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1+1", "'+1+1"),
        ("@SUM(1)", "'@SUM(1)"),
        ("-a", "'-a"),
        ("-5", "-5"),
        ("+1.5e-3", "+1.5e-3"),
        ("a\x00b", "a?b"),
        ("\x00=1", "?=1"),
        ('a, "b"', 'a, "b"'),
    ],
)
def test_no_cell_of_a_table_is_a_formula(text: str, cell: str, tmp_path: Path) -> None:
    """Numbers stay numbers; the rest is marked as a text, and is otherwise as it was."""
    path = logs.jsonl(tmp_path / "a.jsonl", [row | {"group": text} for row in rows(text)])
    table = GroupTable(())
    audit(read(path), each=table.add)
    (row,) = csv.DictReader(io.StringIO(table.data().decode()))
    assert (row["group"], row["prompt"]) == (cell, cell)


@pytest.mark.parametrize("label", [["a"], {"a": 1}, 1, 1.5, True, 2**70, None, [], [[["x"]]]])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.slow
def test_a_class_may_be_anything(label: Any, name: str, together: bool, tmp_path: Path) -> None:
    odd = [row | {"label": label if at % 2 else "x", "advantage": 1.0} for at, row in enumerate(rows("t"))]
    path = logs.jsonl(tmp_path / name, [odd] if name == "a.json" else odd)
    for column in (None, "label"):
        batches = read(path, options=ReadOptions(label=column, together=together))
        findings = audit(batches)
        report.text(findings)
        known = str(label) if isinstance(label, int | float) else "(none)"
        assert {row.label for row in findings.classes} == {"x", known}


def test_a_file_that_goes_away_ends_no_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = (FORMATS[0], [tmp_path / "gone.jsonl"])
    monkeypatch.setattr("search_to_signal.audit.live.find", lambda *_: found)
    assert Following(tmp_path).look() == []
