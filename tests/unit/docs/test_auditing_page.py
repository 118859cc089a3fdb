"""The page on audits quotes what the command prints, and says of every format what its reader met."""

import re
from pathlib import Path

import pytest

from search_to_signal import audit
from search_to_signal.audit.importers import FORMATS
from search_to_signal.cli import main

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "auditing-your-logs.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^    s2s (audit docs/\S+ .*)\n\n((?:    .*\n)+)", PAGE, re.MULTILINE)


def test_the_page_is_short() -> None:
    """A stranger finishes it: at most 900 words."""
    assert len(PAGE.split()) <= 900


@pytest.mark.parametrize(("command", "quoted"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_quoted_lines_are_printed(
    command: str, quoted: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every quoted line is a line of the output."""
    assert len(EXAMPLES) == 2
    monkeypatch.chdir(ROOT)
    assert main(command.split()) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in quoted.splitlines() if line.strip() not in printed] == []


@pytest.mark.parametrize("kind", ["real writer", "reconstruction"])
def test_the_table_says_what_each_reader_met(kind: str) -> None:
    """The row of a kind names the formats that say so, all of them."""
    (row,) = re.findall(rf"^\| {kind} \| (.*) \|$", PAGE, re.MULTILINE)
    assert re.findall(r"`([\w-]+)`", row) == [one.name for one in FORMATS if one.met.startswith(kind)]
    assert all(one.met.startswith(("real writer", "reconstruction")) for one in FORMATS)


def test_the_library_is_called_as_the_page_says() -> None:
    """The lines of Python run."""
    code = re.findall(r"^    (from search_to_signal.*\n    print\(.*\))$", PAGE, re.MULTILINE)[0]
    told: list[str] = []
    exec(code.replace("\n    ", "\n"), {"print": told.append})
    assert told == [audit.text(audit.audit(audit.of_arrays([0, 0, 0, 1e-5], sizes=[4]), "verl-grpo"))]
