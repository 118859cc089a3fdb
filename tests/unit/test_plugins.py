"""What packages register under a name."""

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace
from typing import Any

import pytest

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError

GROUP = "search_to_signal.mappings"


def registered(value: str, package: str) -> EntryPoint:
    """The name mine, as a package registers it."""
    point = EntryPoint("mine", value, GROUP)
    dist: Any = SimpleNamespace(name=package)
    vars(point)["dist"] = dist
    return point


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"first": "math:pi", "second": "math:tau"}, "'mine' is registered by first and second"),
        ({"first": "no_such_module_here:one"}, "cannot load 'mine', registered as no_such_module_here:one"),
        ({"first": "math:no_such_name"}, "cannot load 'mine', registered as math:no_such_name"),
    ],
)
def test_a_name_that_cannot_be_told_is_one_line(
    values: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two packages with one name, and one that lacks what it registers."""
    points = EntryPoints([registered(value, package) for package, value in values.items()])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    with pytest.raises(ConfigError, match=told):
        plugins.load("mine", {}, GROUP)


def test_one_object_may_be_registered_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installed package and its checkout do."""
    points = EntryPoints([registered("math:pi", package) for package in ("first", "second")])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    assert plugins.load("mine", {}, GROUP) == pytest.approx(3.14159, abs=1e-5)
