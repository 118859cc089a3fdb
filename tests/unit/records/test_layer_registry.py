"""The registry of layers and what names them; what is derived from the lock says what the lock says."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from spec.lock import needed

from search_to_signal.base.errors import ConfigError
from search_to_signal.records.layers import LAYERS, get_layer, in_paper_order, layer_part
from search_to_signal.records.provenance import read_lock

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
    rows = [layer.row for layer in in_paper_order()]
    known = [row for row in rows if row]
    assert known == sorted(known)
    assert rows == [*known, *[None] * (len(rows) - len(known))]
    assert set(in_paper_order()) == set(LAYERS)
    with pytest.raises(ConfigError, match="'cohrt'.*cohort, restart"):
        get_layer("cohrt")


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: str(layer.key))
def test_every_layer_has_its_module(layer) -> None:
    assert callable(layer_part(layer.key, "layer").run)


EXPORTS = ROOT / "artifact" / "lock"
UV = shutil.which("uv") or shutil.which(str(ROOT / ".uv" / "bin" / "uv"))


@pytest.mark.skipif(UV is None, reason="uv, which made the exports, is not on this machine")
@pytest.mark.parametrize("name", ["requirements.txt", "pylock.toml", "sbom.cdx.json"])
@pytest.mark.slow
def test_the_checked_in_exports_are_those_of_the_lock(name: str, tmp_path: Path) -> None:
    subprocess.run([EXPORTS / "export.sh", tmp_path], check=True)
    assert (tmp_path / name).read_bytes() == (EXPORTS / name).read_bytes()


def test_the_bill_of_materials_is_the_lock_and_nothing_else() -> None:
    bill = json.loads((EXPORTS / "sbom.cdx.json").read_bytes())
    versions = {package["name"]: package["version"] for package in read_lock()["package"]}
    parts = {part["name"]: part for part in bill["components"]}
    assert {package.name for package in needed(read_lock(), ("gpu", "cluster"))} <= set(parts)
    for name, part in parts.items():
        assert part["version"] == versions[name]
        assert all(link["hashes"] for link in part["externalReferences"])
    known = {part["bom-ref"] for part in bill["components"]}
    assert {end for edge in bill["dependencies"] for end in edge.get("dependsOn", ())} <= known
    assert "serialNumber" not in bill
    assert "timestamp" not in bill["metadata"]


def test_extras_bring_their_packages_and_the_base_does_not() -> None:
    """The base installation needs neither vLLM nor Ray; markers for other systems bring nothing."""
    base = {package.name for package in needed(read_lock())}
    full = {package.name for package in needed(read_lock(), ("gpu", "cluster"))}
    assert {"vllm", "ray"} <= full - base
    assert "pywin32" not in full
    assert "nvidia-ml-py" in {package.name for package in needed(read_lock(), ("gpu",))}
    with pytest.raises(ValueError, match="no extra tpu"):
        needed(read_lock(), ("tpu",))
