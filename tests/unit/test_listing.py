"""``s2s list`` names what a profile may name, and each name it gives is one that works."""

import importlib.metadata
from importlib.metadata import EntryPoint, version

import pytest
from tests.command import Command, Patch

from search_to_signal.cli import main
from search_to_signal.cli.listing import KINDS
from search_to_signal.credit import get_mapping
from search_to_signal.credit.normalizers import get_normalizer
from search_to_signal.models.files import KNOWN, model_directory
from search_to_signal.problems import get_problem
from search_to_signal.records.provenance import source
from search_to_signal.run.profile import load_profile


def listed(kind: str) -> list[str]:
    """The names of a kind."""
    return [name for name, _ in KINDS[kind]()]


@pytest.mark.parametrize(
    ("kind", "get"),
    [
        ("profiles", load_profile),
        ("alternatives", get_mapping),
        ("normalizers", get_normalizer),
        ("problems", get_problem),
        ("models", model_directory),
        ("fetchable", KNOWN.get),
    ],
)
def test_every_name_can_be_used(kind: str, get: object) -> None:
    assert listed(kind)
    for name in listed(kind):
        assert get(name) is not None  # type: ignore[operator]


def test_mappings_are_conditions() -> None:
    """Frozen, then everything that a condition may name."""
    frozen, *mappings = listed("mappings")
    assert frozen == "frozen"
    assert [get_mapping(name).name for name in mappings] == mappings


@pytest.mark.parametrize("kind", ["mappings", "normalizers", "problems", "hosts", "rules"])
def test_a_registered_name_that_is_built_in_is_called_hidden(monkeypatch: Patch, kind: str) -> None:
    """A name stands for the built-in object; the package that registers it too learns that from the list."""
    taken = listed(kind)[-1]
    points = [EntryPoint(name, f"mine:{kind}", "group") for name in (taken, "own")]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    own = [row for row in KINDS[kind]() if row[1].startswith("mine:")]
    assert own == [(taken, f"mine:{kind}, hidden by a built-in of this name"), ("own", f"mine:{kind}")]


def test_all_of_it_or_one_kind(s2s: Command) -> None:
    """Without a kind every kind has a heading; an unknown one is refused with the known ones."""
    assert [line for line in s2s("list").out.splitlines() if line[:1] != " "] == [f"{k}:" for k in KINDS]
    assert "qwen2-2.1m" in s2s("list", "models").out
    assert "profiles" in s2s("list", "cats", code=2).err


@pytest.mark.slow
def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Program, version, the source as manifests name it, and the libraries that decide a run's bits."""
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"s2s {version('search-to-signal')}, source {source().sha256}"
    assert f"torch {version('torch')}, transformers {version('transformers')}" in second
