"""What travels with the wheel is what the package looks for, and it is found where it then lies."""

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import tomli
from tests.copies import copy_to_change

from search_to_signal import package_data

ROOT = Path(__file__).parents[2]
PLACES = ("PROFILES", "MODELS", "PUBLISHED", "PIN", "LOCK", "PYPROJECT")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module as the wheel has it: every file where pyproject.toml says, and nothing else around."""
    wheel = tomli.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source, target in {**wheel["sources"], **wheel["force-include"]}.items():
        for included in (path for path in (*wheel["only-include"], *wheel["force-include"])):
            if included == source or included.startswith(f"{source}/"):
                to = tmp_path / target / Path(included).relative_to(source)
                to.parent.mkdir(parents=True, exist_ok=True)
                copy = copy_to_change if (ROOT / included).is_dir() else shutil.copyfile
                copy(ROOT / included, to)
    spec = importlib.util.spec_from_file_location(
        "installed_data", tmp_path / "search_to_signal" / "package_data.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_looked_for_travels(installed: ModuleType) -> None:
    """Every place that the package knows is there in a wheel, with the files that it has in a checkout."""
    assert (package_data.INSTALLED, installed.INSTALLED) == (False, True)
    for name in PLACES:
        here, there = getattr(package_data, name), getattr(installed, name)
        assert installed.PACKAGE in there.parents
        assert sorted(p.relative_to(here) for p in here.rglob("*")) == sorted(
            p.relative_to(there) for p in there.rglob("*")
        )
        assert there.is_dir() or there.read_bytes() == here.read_bytes()


def test_a_wheel_is_the_same_source(installed: ModuleType) -> None:
    """The files that decide a result have the same names and bytes, in the same order, in both."""
    here, there = package_data.source_files(), installed.source_files()
    assert list(here) == list(there)
    assert all(path.read_bytes() == there[name].read_bytes() for name, path in here.items())
    assert "artifact/search_to_signal/package_data.py" in here
    assert "uv.lock" in here
