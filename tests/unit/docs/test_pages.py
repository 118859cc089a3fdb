"""What the pages say exists: links, options, keys, fields, figures, examples, the README's picture."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from PIL import Image
from spec.strategies import group
from tests.command import Make, Patch
from tests.docs.picture import COURSE, DRAWN_FROM, draw_course, drawn_from, shipped_course
from tests.docs.reference import UNSAID, pages, profile_tables, record_kinds

from search_to_signal.cli import main
from search_to_signal.credit import get_mapping, rewards_of
from search_to_signal.records.schema import Outcome
from search_to_signal.report.figures.cohort import Planned
from search_to_signal.report.results import Results
from search_to_signal.report.tables.catalogue import TRACED, added_table, build

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "artifact").rglob("*.md"),
    )
)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
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
    bare = [re.split(r" {2,}", command)[0] for command in found]
    return [shlex.split(re.sub("['\"]", "", command)) for command in bare]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _, command, *rest in commands(page):
        # What follows this one is a command, too.
        action = rest[:1] if command == "model" else []
        with pytest.raises(SystemExit) as stop:
            main([command, *action, "--help"])
        told = capsys.readouterr().out
        assert stop.value.code == 0, f"{page.name}: there is no command s2s {command}"
        for option in (word for word in rest if word.startswith("--")):
            assert re.search(rf"{option}\b", told), f"{page.name}: s2s {command} has no {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    for path in re.findall(r"`((?:artifact|spec|tests|docs)/[\w./*-]+)`", page.read_text(encoding="utf-8")):
        assert list(ROOT.glob(path.rstrip("/"))), f"{page.name} names {path}"


def test_reference_tables_are_those_of_the_code() -> None:
    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tests.docs.reference"
        assert f"| {UNSAID} |" not in text, f"{path.name}: say what the new row is for"
    marked = {path.stem: re.findall(r"<!-- table: (.*) -->", text) for path, text in pages().items()}
    assert sorted(marked["profiles"]) == sorted(dict(profile_tables()))
    assert sorted(marked["records"]) == sorted(record_kinds())


@pytest.mark.parametrize(("page", "words"), [("README.md", 700), ("docs/threats.md", 900)])
def test_the_page_is_short(page: str, words: int) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= words


EXAMPLES = sorted(path for path in (ROOT / "docs" / "examples").iterdir() if path.is_file())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_a_page_links_the_example(example: Path) -> None:
    assert any(f"examples/{example.name})" in page.read_text(encoding="utf-8") for page in PAGES)


def test_the_example_of_a_reward_is_shown_word_for_word() -> None:
    code = (ROOT / "docs" / "examples" / "my_rewards.py").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (short,) = re.findall(r"^    def __call__\(self, groups\):\n((?:        .*\n)+)", readme, re.MULTILINE)
    assert [line for line in short.splitlines() if line.strip() not in code] == []
    assert f"```python\n{code}```" in (ROOT / "docs" / "your-reward.md").read_text(encoding="utf-8")


def test_the_example_of_a_table_is_traced(make_run: Make, tmp_path: Path, monkeypatch: Patch) -> None:
    make_run(tmp_path / "cohort" / "native-s1", "native", 1)
    monkeypatch.syspath_prepend(ROOT / "docs" / "examples")
    own = added_table("lengths", "my_table:lengths")
    monkeypatch.setitem(cast(dict[str, object], TRACED), "lengths", own)
    table = build(Results(tmp_path), "lengths")
    cell = table.cell("native", "Tokens")
    assert cell.value > 0
    assert all((tmp_path / origin.path).is_file() for origin in cell.origins)


def test_the_example_of_a_mapping_keeps_the_specification(monkeypatch: Patch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "examples")
    mapping = get_mapping("my_rewards:improver")
    batch = group([2.0, 1.0, Outcome.RUNTIME_FAILURE], bases=[1.0], frontier=1.0)
    assert rewards_of(mapping, batch).reward.tolist() == [[1.0, 0.5, 0.0]]
    creation = group([2.0, Outcome.MISSING_CODE], bases=[], frontier=1.0)
    assert rewards_of(mapping, creation).reward.tolist() == [[0.5, 0.0]]


PIXEL = 255.0


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image.Image]:
    path = tmp_path_factory.mktemp("picture") / "course.png"
    draw_course(*shipped_course(), path)
    with Image.open(path) as image:
        yield image


@pytest.mark.slow
def test_the_picture_is_of_the_shipped_table(again: Image.Image) -> None:
    with Image.open(COURSE) as shipped:
        assert shipped.info[DRAWN_FROM] == drawn_from(*shipped_course()), "python -m tests.docs.picture"
        assert shipped.size == again.size
        ours, now = (np.asarray(image.convert("L"), dtype=float) for image in (shipped, again))
    assert np.abs(ours - now).mean() < PIXEL / 1000, "python -m tests.docs.picture"


def test_the_readme_shows_it() -> None:
    assert "](docs/course.png)" in (ROOT / "README.md").read_text(encoding="utf-8")
    text, planned = shipped_course()
    rows = [line.split(",") for line in text.splitlines()[1:]]
    models = dict.fromkeys(row[1] for row in rows)
    assert next(iter(models)).startswith("qwen2.5-coder")
    assert list(models)[-1] == "qwen2-2.1m"
    for model in models:
        measures = {row[5] for row in rows if row[1] == model}
        assert measures == {"valid (%)", "mean valid score", "distinct programs (%)", "best score so far"}
    assert planned["pretrained-1.5b"].seeds == 8


def test_another_seed_or_plan_is_another_picture(tmp_path: Path) -> None:
    text, planned = shipped_course()
    fewer = "\n".join(text.splitlines()[:-1]) + "\n"
    told = {
        drawn_from(text, planned),
        drawn_from(fewer, planned),
        drawn_from(text, planned | {"main": Planned(30, "PARTIAL")}),
    }
    assert len(told) == 3
