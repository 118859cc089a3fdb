"""A table of somebody's own that is wrong ends a report with one line, which names it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from tests.command import Command, Patch

from search_to_signal.base.errors import ConfigError, MappingError
from search_to_signal.report.results import Results
from search_to_signal.report.tables.catalogue import BUILDERS, TRACED, Builder, added_table, catalogue

pytestmark = pytest.mark.slow

MODULE = """
from search_to_signal.report.results import NoTableError
from search_to_signal.report.tables.cells import Cell
from search_to_signal.report.tables.cells import Row
from search_to_signal.report.tables.cells import Table

def table(*rows, layer="cohort", columns=("Tokens", "Cut (%)")):
    return Table("own", "Own", layer, columns, rows)

no_function = 3

def own(results):
    return {body}
"""
WRONG = {
    "raises": (
        "results.cohort[9]",
        r"table own raised IndexError: tuple index out of range \(own_\w+\.py:13\)",
    ),
    "ends": ("exit(0)", r"table own raised SystemExit"),
    "no_table": ("None", r"returned NoneType: return cells\.Table"),
    "too_few": ('table(Row("native", (Cell(1),)))', r"'native' of 1 cells for 2 columns: give one cell per"),
    "twice": (
        'table(*2 * [Row("a", (Cell(1), Cell(2)))])',
        r"has two rows 'a': give each a label of its own",
    ),
    "bare": ('table(Row("a", (1, 2)))', r"with int in place of a cell: give cells\.Cell"),
    "array": ('table(Row("a", (Cell([1]), Cell(2))))', r"with a value of type list: give a number"),
    "layer": ('table(layer="mine")', r"is of layer 'mine': give one of cohort, restart"),
}


def add(monkeypatch: Patch, place: Path, body: str, function: str = "own") -> None:
    """Put a table with this body into the catalogue, under the name own."""
    module = f"own_{place.name}"
    (place / f"{module}.py").write_text(MODULE.format(body=body), encoding="utf-8")
    monkeypatch.chdir(place)
    for builders in (BUILDERS, TRACED):
        own = added_table("own", f"{module}:{function}")
        monkeypatch.setitem(cast(dict[str, Builder], builders), "own", own)


@pytest.fixture
def results(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    make_run(tmp_path / "results" / "cohort" / "native-s1", "native", 1)
    return tmp_path / "results"


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("command", ["report", "trace"])
def test_a_wrong_table_is_one_line(
    results: Path, tmp_path: Path, monkeypatch: Patch, s2s: Command, command: str, what: str
) -> None:
    """Whatever it raises or returns, the line names it and what is wrong, and never is a traceback."""
    body, words = WRONG[what]
    add(monkeypatch, tmp_path, body)
    more = ["--out", str(tmp_path / "page")] if command == "report" else ["own"]
    err = s2s(command, results, *more, code=MappingError.exit_code).err
    assert err.startswith("s2s: error: table own ")
    assert err.count("\n") == 1
    assert re.search(words, err), err


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            "owm",
            "has no attribute 'owm'): check that the module is on PYTHONPATH and defines that name, or take",
        ),
        ("no_function", "is no function: give one of Results that returns a Table"),
    ],
)
def test_a_table_that_is_not_there_is_one_line(
    results: Path, tmp_path: Path, monkeypatch: Patch, s2s: Command, function: str, words: str
) -> None:
    add(monkeypatch, tmp_path, "table()", function)
    err = s2s("report", results, "--out", tmp_path / "page", code=ConfigError.exit_code).err
    assert err.startswith("s2s: error: table own: ")
    assert err.count("\n") == 1
    assert words in err


def test_a_table_of_nothing_says_why(results: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    add(monkeypatch, tmp_path, '(_ for _ in ()).throw(NoTableError("no run was cut"))')
    assert catalogue(Results(results)).absent["own"] == "no run was cut"
