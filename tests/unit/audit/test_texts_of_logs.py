"""Texts of a log where people meet them, and values that nobody expects in any field: never a traceback."""

import csv
import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.changed_logs import LOGS, VALUES, Change, Place, audited_every_way, changes, few_normalizers
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal.audit import report
from search_to_signal.audit.findings import audit
from search_to_signal.audit.group_files import GroupTable
from search_to_signal.audit.importers import FORMATS, read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.live import Following

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
    assert len(out) + len(page) < 120_000
    assert page.count("<script") == page.count("</script") == 1
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
    table = GroupTable((), 1000)
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


# Where a traceback came of it.
KNOWN: set[tuple[str, Place, str]] = {
    ("trl-wandb", (0, "columns", 0), "list"),
    ("trl-wandb", (0, "columns", 0), "mapping"),
    ("neutral-jsonl", (0, "label"), "list"),
    ("neutral-jsonl", (0, "label"), "true"),
    ("neutral-jsonl", (0, "label"), "1.5"),
    ("neutral-json", (1, "label"), "mapping"),
    ("verl", (0, "input"), "NUL"),
    ("neutral-csv", (0, "group"), "NUL"),
    ("neutral-jsonl", (0, "step"), "10**400"),
    ("prime-rl", (0, "traces", 0, "nodes", 0, "mask", 0), "NaN"),
    ("tinker", (0, "steps", 0, "ac_len"), "2**63"),
    ("skyrl-eval", (0, "input_prompt"), "nested 900"),
    ("verl v0", (0, "input"), "nested 900"),
    ("neutral-parquet", (0, "group"), "2**63"),
}


def test_every_format_is_tried() -> None:
    assert {form.name for form in FORMATS} <= set(LOGS)


@pytest.mark.slow
def test_any_value_in_any_field_is_an_audit_or_one_line(tmp_path: Path) -> None:
    drawn = random.Random(65)
    values: dict[tuple[str, Place], str] = {}

    def chosen(log: str, place: Place, value: str) -> bool:
        given = values.setdefault((log, place), drawn.choice(list(VALUES)))
        return (log, place, value) in KNOWN or (place[0] == 0 and value == given)

    with few_normalizers():
        for change in changes(tmp_path, chosen):
            with named(change):
                audited_every_way(change)


@contextmanager
def named(change: Change) -> Iterator[None]:
    """Let a failure say which change it was."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{change.log} {change.place} = {change.value}: {error!r}") from error
