"""The page of facts about the released host has every point that code and tests cite."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "artifact/calm/HOST.md").read_text(encoding="utf-8")
CITED = re.compile(r"HOST\.md, points? ([\d, andto]+)|[Pp]oints? ([\d, andto]+) of HOST\.md")
SECTION = re.compile(r"HOST\.md, ([A-Z]\w+)")


def sources() -> list[tuple[str, str]]:
    """Every source and decision as (path, text with single blanks)."""
    rooms = [ROOT / room for room in ("artifact/search_to_signal", "spec", "tests")]
    paths = [path for room in rooms for kind in ("py", "md", "toml") for path in room.rglob(f"*.{kind}")]
    chosen = [path for path in paths if path != Path(__file__)]
    return [(path.name, " ".join(path.read_text(encoding="utf-8").split())) for path in sorted(chosen)]


def numbers(cited: str) -> set[int]:
    """The points of a citation; "8 to 12" has five."""
    found = {int(number) for number in re.findall(r"\d+", cited)}
    for first, last in re.findall(r"(\d+) to (\d+)", cited):
        found |= set(range(int(first), int(last) + 1))
    return found


def test_points_are_numbered_without_a_gap() -> None:
    points = [int(number) for number in re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)]
    assert points == list(range(1, len(points) + 1))


def test_every_cited_point_exists() -> None:
    points = {int(number) for number in re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)}
    sections = set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE))
    cited = [(name, match) for name, text in sources() for match in CITED.finditer(text)]
    assert len(cited) > 20
    assert [(name, match[0]) for name, match in cited if numbers(match[1] or match[2]) - points] == []
    named = [(name, found) for name, text in sources() for found in SECTION.findall(text)]
    assert [entry for entry in named if entry[1] not in sections] == []


def test_the_host_is_cited_by_its_page_alone() -> None:
    assert [name for name, text in sources() if re.search(r"host (point|fact|section)s? ?\d", text)] == []
