"""The registry of evidence layers, and whatever else names layers, held against it."""

import re
from pathlib import Path

import pytest

from search_to_signal.base.errors import ConfigError
from search_to_signal.records.layers import LAYERS, get_layer, in_paper_order, layer_part

ROOT = Path(__file__).parents[3]
HEADS = {"directory", "where"}


def layer_tables() -> dict[Path, list[tuple[str, str]]]:
    """Per page with a table of layers and their directories: the name and the key of each row."""
    found: dict[Path, list[tuple[str, str]]] = {}
    pages = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "artifact").rglob("*.md"))
    for page in pages:
        rows: list[tuple[str, str]] = []
        column = None
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else []
            if cells and cells[0] == "layer" and HEADS & set(cells):
                column = next(number for number, cell in enumerate(cells) if cell in HEADS)
            elif column is not None and len(cells) > column:
                rows += [(cells[0], key) for key in re.findall(r"`(\w+)/`", cells[column])]
            else:
                column = None
        if rows:
            found[page] = rows
    return found


def test_pages_list_the_layers_that_there_are() -> None:
    tables = layer_tables()
    assert tables
    for page, rows in tables.items():
        assert sorted(rows) == sorted((layer.name, layer.key) for layer in LAYERS), page.name


def test_keys_and_names_are_given_once() -> None:
    """Two layers never share a directory or a heading, nor a row of the paper's evidence matrix."""
    rows = [layer.row for layer in LAYERS if layer.row]
    for values in ([layer.key for layer in LAYERS], [layer.name for layer in LAYERS], rows):
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: str(layer.key))
def test_every_layer_has_its_module(layer) -> None:
    assert callable(layer_part(layer.key, "layer").run)


def test_the_paper_comes_first() -> None:
    rows = [layer.row for layer in in_paper_order()]
    known = [row for row in rows if row]
    assert known == sorted(known)
    assert rows == [*known, *[None] * (len(rows) - len(known))]
    assert set(in_paper_order()) == set(LAYERS)


def test_an_unknown_layer_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="'cohrt'.*cohort, restart"):
        get_layer("cohrt")
