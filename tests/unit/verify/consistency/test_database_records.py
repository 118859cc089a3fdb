"""The stored program database: another version, unknown programs and another state are one line each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from search_to_signal.base.errors import RecordError
from search_to_signal.records.manifest import DATABASE, Database, read_database, read_manifest, write_database
from search_to_signal.records.reader import HEURISTICS, read_records
from search_to_signal.records.schema import HeuristicRecord
from search_to_signal.verify.records import database_problems


@pytest.fixture
def run(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    """A run whose database has every heuristic on one of two islands, one of them waiting."""
    directory = make_run(tmp_path / "frozen-s42", "frozen", config={"host": "evotune"}, host="evotune")
    seed, *others = (h.id for h in read_records(directory / HEURISTICS, HeuristicRecord))
    islands = ((seed, *others[:-1]), (seed,))
    write_database(directory, Database(groups=4, islands=islands, waiting=((1, others[-1]),)))
    return directory


def problems(directory: Path) -> list[str]:
    """What is said of the database."""
    return list(database_problems(directory, read_manifest(directory)))


def changed(directory: Path, **changes: Any) -> None:
    """Write the database with other fields."""
    path = directory / DATABASE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_does_not_fit_is_named(run: Path, make_run: Callable[..., Path], tmp_path: Path) -> None:
    assert read_database(run).waiting[0][0] == 1
    assert problems(run) == []
    stored = msgspec.to_builtins(read_database(run))
    changed(run, islands=[*stored["islands"], ["f" * 64]])
    assert problems(run) == [f"database.json: program {'f' * 64} is not a heuristic of this run"]
    changed(run, islands=stored["islands"], waiting=[])
    assert problems(run) == ["database.json: it is not the database after the last step"]
    changed(run, waiting=stored["waiting"], groups=3)
    assert problems(run) == ["database.json: it is not the database after the last step"]
    plain = make_run(tmp_path / "plain")
    assert problems(plain) == []
    (plain / DATABASE).write_bytes((run / DATABASE).read_bytes())
    assert problems(plain) == ["database.json: the run's host has no database"]


@pytest.mark.parametrize("version", [0, 2, None])
def test_another_version_is_one_line(run: Path, version: int | None) -> None:
    found = json.loads((run / DATABASE).read_text())
    found["version"] = version
    if version is None:
        del found["version"]
    (run / DATABASE).write_text(json.dumps(found))
    with pytest.raises(RecordError, match=rf"of version {version or 0}, "):
        read_database(run)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": "one"}', "\xff"])
def test_a_damaged_database_is_one_line(run: Path, text: str) -> None:
    (run / DATABASE).write_bytes(text.encode("latin-1"))
    with pytest.raises(RecordError, match=r"database.json .*restore it"):
        read_database(run)
    (run / DATABASE).unlink()
    with pytest.raises(RecordError, match=r"there is no .*database.json: restore it"):
        read_database(run)
