"""What travels with the wheel is what the package looks for, and it is found where it then lies."""

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tomli
from tests.copies import copy_to_change

from search_to_signal.base import package_data

ROOT = Path(__file__).parents[2]
PLACES = ("PROFILES", "MODELS", "PUBLISHED", "PIN", "LOCK", "PYPROJECT")


def wheel_of(project: Path) -> dict[str, Any]:
    """What a project's pyproject.toml says of its wheel."""
    tables = tomli.loads((project / "pyproject.toml").read_text())
    wheel: dict[str, Any] = tables["tool"]["hatch"]["build"]["targets"]["wheel"]
    return wheel


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module as the wheel has it: every file where pyproject.toml says, and nothing else around."""
    wheel = wheel_of(ROOT)
    for source, target in {**wheel["sources"], **wheel["force-include"]}.items():
        for included in (path for path in (*wheel["only-include"], *wheel["force-include"])):
            if included == source or included.startswith(f"{source}/"):
                to = tmp_path / target / Path(included).relative_to(source)
                to.parent.mkdir(parents=True, exist_ok=True)
                copy = copy_to_change if (ROOT / included).is_dir() else shutil.copyfile
                copy(ROOT / included, to)
    for excluded in [path for pattern in wheel["exclude"] for path in tmp_path.rglob(pattern)]:
        excluded.unlink()
    spec = importlib.util.spec_from_file_location(
        "installed_data", tmp_path / "search_to_signal" / "base" / "package_data.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_looked_for_travels(installed: ModuleType) -> None:
    """Every place that the package knows is there in a wheel, with a checkout's files but for the weights."""
    assert (package_data.INSTALLED, installed.INSTALLED) == (False, True)
    for name in PLACES:
        here, there = getattr(package_data, name), getattr(installed, name)
        assert installed.PACKAGE in there.parents
        assert sorted(p.relative_to(there) for p in there.rglob("*")) == sorted(
            p.relative_to(here) for p in here.rglob("*") if p.suffix != ".safetensors"
        )
        assert there.is_dir() or there.read_bytes() == here.read_bytes()
    modules = sorted(package_data.TRAINING.glob("*.py"))
    assert "training" in {path.stem for path in modules}
    for path in modules:
        assert (installed.TRAINING / path.name).read_bytes() == path.read_bytes()


def test_the_weights_travel_in_a_wheel_of_their_own(installed: ModuleType) -> None:
    """What one wheel leaves out the other brings, to the same place, for the same version."""
    weights = wheel_of(package_data.MODELS)
    assert weights["include"] == wheel_of(ROOT)["exclude"]
    assert weights["sources"] == {"": installed.MODELS.relative_to(installed.PACKAGE.parent).as_posix()}
    ours, theirs = (
        tomli.loads((place / "pyproject.toml").read_text())["project"]
        for place in (ROOT, package_data.MODELS)
    )
    assert theirs["dependencies"] == [f"{ours['name']}=={ours['version']}"]
    assert (theirs["version"], theirs["license"]) == (ours["version"], ours["license"])


def test_a_wheel_is_the_same_source(installed: ModuleType) -> None:
    """The files that decide a result have the same names and bytes, in the same order, in both."""
    here, there = package_data.source_files(), installed.source_files()
    assert list(here) == list(there)
    assert all(path.read_bytes() == there[name].read_bytes() for name, path in here.items())
    assert "artifact/search_to_signal/base/package_data.py" in here
    assert "uv.lock" in here
