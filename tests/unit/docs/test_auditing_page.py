"""The page on audits quotes what the command prints, and says of every format what its reader met."""

import re
from pathlib import Path

import pytest
from tests.command import Command, Patch

from search_to_signal import audit
from search_to_signal.audit.importers import FORMATS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
LOGS = (ROOT / "docs" / "reference" / "logs.md").read_text(encoding="utf-8")
QUOTED = r"^    s2s (audit (?:docs|tests)/.*)\n\n((?:    .*\n)+)"
EXAMPLES = re.findall(QUOTED, f"{PAGE}\n{README}\n{LOGS}", re.MULTILINE)


def test_the_page_is_short_and_calls_the_library() -> None:
    assert len(re.sub(r"^\|.*\n", "", PAGE, flags=re.MULTILINE).split()) <= 1150
    code = re.findall(r"^    (from search_to_signal.*\n    print\(.*\))$", PAGE, re.MULTILINE)[0]
    told: list[str] = []
    exec(code.replace("\n    ", "\n"), {"print": told.append})
    assert told == [audit.text(audit.audit(audit.of_arrays([0, 0, 0, 1e-5], sizes=[4]), "verl-grpo"))]


@pytest.mark.parametrize(("command", "quoted"), EXAMPLES)
def test_quoted_lines_are_printed(command: str, quoted: str, s2s: Command, monkeypatch: Patch) -> None:
    monkeypatch.chdir(ROOT)
    printed = s2s(*command.split()).out.splitlines()
    assert [line for line in quoted.splitlines() if line.strip() not in printed] == []


def test_the_table_says_which_writer_each_reader_met() -> None:
    rows = re.findall(r"^\| (`.*) \| .* \| (\S+) \| (\S+) \| ([\w ]+) \|$", PAGE, re.MULTILINE)
    told = [name for names, *_ in rows for name in re.findall(r"`([\w-]+)`", names)]
    assert list(dict.fromkeys(told)) == [one.name for one in FORMATS]
    for one in FORMATS:
        own = [row[1:] for row in rows if f"`{one.name}`" in row[0]]
        assert {kind for *_, kind in own} == {part.split(":")[0] for part in one.met.split("; ")}, one.name
        for commit, date, _ in own:
            read = "" if commit == "–" else rf"{commit}\w{{32}}"
            assert re.search(read if date == "–" else f"{read} {date}", one.writer), (one.name, commit, date)
