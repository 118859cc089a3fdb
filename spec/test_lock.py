"""The lock pins every file by hash and stays readable for tools other than uv, Nix among them."""

import re
from pathlib import Path
from typing import Any

import pytest
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from search_to_signal.records.provenance import read_lock
from spec.lock import PROJECT, needed

ROOT = Path(__file__).parents[1]

PACKAGES: list[dict[str, Any]] = read_lock()["package"]
THIRD_PARTY = [package for package in PACKAGES if package["name"] != PROJECT]
# glibc of the image (Ubuntu 22.04) and everything older; a wheel that needs a newer one would not load.
PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in range(35, 4, -1)),
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
    "linux_x86_64",
]
USABLE: set[Tag] = {
    *cpython_tags((3, 10), platforms=PLATFORMS),
    *compatible_tags((3, 10), "cp310", PLATFORMS),
}


def files(package: dict[str, Any]) -> list[dict[str, Any]]:
    """Every distribution file that the lock lists for a package."""
    return [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]


def test_every_file_has_a_sha256() -> None:
    """R-LOCK-01: Every wheel and source archive in the lock carries a SHA-256."""
    hashes = [file.get("hash", "") for package in THIRD_PARTY for file in files(package)]
    assert hashes
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", value) for value in hashes)


def test_every_source_is_the_registry() -> None:
    """R-LOCK-02: Every package but the project comes from one registry: no git, path, URL or local file."""
    sources = {tuple(package["source"].items()) for package in THIRD_PARTY}
    assert sources == {(("registry", "https://pypi.org/simple"),)}


@pytest.mark.parametrize("extras", [(), ("gpu", "cluster")])
def test_every_needed_package_has_a_usable_wheel(extras: tuple[str, ...]) -> None:
    """R-LOCK-03: What the image installs has a wheel for Linux x86_64 and CPython 3.10: nothing is built."""
    without = [
        package.name
        for package in needed(read_lock(), extras)
        if not any(parse_wheel_filename(name)[3] & USABLE for name in package.wheels)
    ]
    assert without == []


def test_the_version_is_static_and_nothing_is_overridden() -> None:
    """R-LOCK-04: The version is written out; no overrides; constraints are exact; one fixed date."""
    project = read_lock(ROOT / "pyproject.toml")
    lock = read_lock()
    settings = project["tool"]["uv"]
    assert "dynamic" not in project["project"]
    assert [p["version"] for p in PACKAGES if p["name"] == PROJECT] == [project["project"]["version"]]
    assert not {"override-dependencies", "sources", "index"} & set(settings)
    constraints = dict(text.split("==") for text in settings["constraint-dependencies"])
    assert constraints == {p["name"]: p["version"] for p in THIRD_PARTY if p["name"] in constraints}
    assert set(lock["manifest"]) == {"constraints"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT00:00:00Z", lock["options"]["exclude-newer"])
    assert lock["options"]["exclude-newer"] == settings["exclude-newer"]


def test_every_package_is_locked_once() -> None:
    """R-LOCK-05: No package stands in the lock in two versions, so a name means one set of files."""
    names = [package["name"] for package in PACKAGES]
    assert sorted(set(names)) == sorted(names)
