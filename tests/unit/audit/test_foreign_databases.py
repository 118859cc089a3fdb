"""SQLite files of strangers: what is no plain table is not read, and no query of theirs is run."""

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.audit import logs

from search_to_signal.audit.importers import read
from search_to_signal.base.errors import RecordError

_ENDLESS = "WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM r) SELECT"
_COLUMNS = "id, code, parent_id, generation, timestamp"
_VIEW = "ALTER TABLE programs RENAME TO p; CREATE VIEW programs AS"
_NUMBERS = "WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM r LIMIT 30000)"
CHANGES = {
    "a view that never ends": f"{_VIEW} {_ENDLESS} x AS id, x AS code, x AS parent_id, x AS generation,"
    " x AS timestamp, x AS combined_score, x AS correct FROM r",
    "a view over another": f"{_VIEW} SELECT * FROM p",
    "a view for the archive": "DROP TABLE archive;"
    f" CREATE VIEW archive AS {_ENDLESS} 'p1' AS program_id FROM r WHERE x < 0",
    "a computed column": "ALTER TABLE programs ADD COLUMN big AS (length(hex(zeroblob(4000))))",
    "a computed score": f"ALTER TABLE programs RENAME TO p; CREATE TABLE programs ({_COLUMNS}, correct,"
    " combined_score AS (length(hex(zeroblob(4000)))));"
    f" INSERT INTO programs SELECT {_COLUMNS}, correct FROM p",
    "a virtual table": "ALTER TABLE programs RENAME TO p;"
    f" CREATE VIRTUAL TABLE programs USING fts5({_COLUMNS}, combined_score, correct)",
    "a join without end": "DROP TABLE archive; CREATE TABLE archive (program_id);"
    " ALTER TABLE programs RENAME TO p; CREATE TABLE programs AS SELECT * FROM p;"
    f" {_NUMBERS} INSERT INTO archive SELECT 'no' || x FROM r;"
    f" {_NUMBERS} INSERT INTO programs (id, generation) SELECT 'a', x FROM r;"
    " UPDATE programs SET parent_id = 'a', combined_score = 1",
}


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_of_a_database_is_run(name: str, tmp_path: Path) -> None:
    path = logs.shinka(tmp_path)
    with sqlite3.connect(path) as connection:
        connection.executescript(CHANGES[name])
    connection.close()
    start = time.process_time()
    rows = 0
    with suppress(RecordError):
        rows = sum(len(batch.reward) for batch in read(path))
    assert rows == (4 if name == "a view for the archive" else 0)
    assert time.process_time() - start < 30


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_pipe_beside_a_database_is_not_waited_for(end: str, tmp_path: Path) -> None:
    """SQLite opens these three by their names."""
    path = logs.shinka(tmp_path)
    path.with_name(f"{path.name}-wal").write_bytes(b"x" * 100)
    path.with_name(path.name + end).unlink(missing_ok=True)
    os.mkfifo(path.with_name(path.name + end))
    assert sum(len(batch.reward) for batch in read(path)) == 4
