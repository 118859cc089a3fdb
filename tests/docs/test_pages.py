"""What the pages say exists: links, options, keys, fields, figures, floors and examples."""

import re
import shlex
from pathlib import Path

import pytest

from search_to_signal.cli import main
from tests.docs.reference import UNSAID, pages, profile_tables, record_kinds
from tests.figures import read_figures

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "artifact").rglob("*.md"))
)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page is a file or directory of this repository, and every anchor a heading."""
    for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        place, _, anchor = target.partition("#")
        found = (page.parent / place).resolve() if place else page
        assert found.exists(), f"{page.name} links to {target}"
        assert found.is_relative_to(ROOT)
        if anchor:
            heads = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def commands(page: Path) -> list[list[str]]:
    """Every ``s2s COMMAND ...`` of a page, in words."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"(?:^ {4}|^\| `|`|^)(?:\.venv/bin/)?(s2s [a-z][^`\n]*)", text, re.MULTILINE)
    return [shlex.split(re.split(r" {2,}", command)[0].replace("'", "").replace('"', "")) for command in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that a page names has a help page, which names every option that the page gives it."""
    for _, command, *rest in commands(page):
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        told = capsys.readouterr().out
        assert stop.value.code == 0, f"{page.name}: there is no command s2s {command}"
        for option in (word for word in rest if word.startswith("--")):
            assert re.search(rf"{option}\b", told), f"{page.name}: s2s {command} has no {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A path below artifact, spec, tests or docs in code type is there."""
    for path in re.findall(r"`((?:artifact|spec|tests|docs)/[\w./*-]+)`", page.read_text(encoding="utf-8")):
        assert list(ROOT.glob(path.rstrip("/"))), f"{page.name} names {path}"


def test_reference_tables_are_those_of_the_code() -> None:
    """No key of a profile and no field of a record is missing or unexplained: python -m tests.docs.reference."""
    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tests.docs.reference"
        assert f"| {UNSAID} |" not in text, f"{path.name}: say what the new row is for"
        marked = set(re.findall(r"<!-- table: (.*) -->", text))
        assert marked == set(dict(profile_tables()) if path.stem == "profiles" else record_kinds())


def test_figures_of_proofs_are_those_that_proofs_wrote() -> None:
    """The table of proofs quotes tests/proofs/figures.json, every entry of it and nothing else."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    _, _, table = page.partition("<!-- figures -->\n")
    rows = re.findall(r"^\| ([^|]+) \| `(.+)` \| `(.+)` \|$", table, re.MULTILINE)
    quoted = {name: {"command": command, "printed": printed} for name, command, printed in rows}
    assert quoted == read_figures()


def test_the_readme_is_short() -> None:
    """A stranger finishes it: at most 900 words."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900
