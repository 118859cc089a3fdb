"""Files that would take memory or time without end, or run a query of theirs: one line, and soon."""

import gzip
import json
import os
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.command import Patch
from tests.unit.audit import logs

from search_to_signal.audit.importers import read, streams
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.importers.neutral import NAMED
from search_to_signal.base.errors import RecordError

pytestmark = pytest.mark.slow


def refused(path: Path, options: ReadOptions | None = None) -> str:
    """The one line with which a log is refused, within seconds."""
    start = time.process_time()
    with pytest.raises(RecordError) as caught:
        list(read(path, options=options))
    assert time.process_time() - start < 10
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 1),
    "zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
}
_ROW = b'{"group": 1, "reward": 1.0, "response": ""}\n'
_STARTS = {
    "blank lines": (_ROW, b"\n"),
    "a line without end": (b'{"group": 1, "reward": 1.0, "response": "', b"a"),
    "a document without end": (b"[", b" "),
    "rows without end": (_ROW, b'{"group":1,"reward":1}\n'),
}


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("start", _STARTS)
def test_a_packed_bomb_is_one_line(start: str, packer: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(streams, "ROOM", 1024 * 1024)
    monkeypatch.setattr(streams, "GROWTH", 20)
    first, rest = _STARTS[start]
    path = tmp_path / f"a.jsonl.{packer}"
    path.write_bytes(PACKERS[packer](first + rest * (4 * 1024 * 1024 // len(rest))))
    assert "times its size" in refused(path)


@pytest.mark.parametrize("text", [b"{},", b"[],", b"[[]],"])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_brackets_without_values_are_one_line(name: str, text: bytes, tmp_path: Path) -> None:
    row = b'{"group": 1, "reward": 1.0, "prompt": [' + text * 2_000_000 + b"1]}"
    path = tmp_path / name
    path.write_bytes(b"[" + row + b"]" if name == "a.json" else row + b"\n")
    assert "lists or objects" in refused(path)


@pytest.mark.parametrize("depth", [100, 500, 950, 100_000])
@pytest.mark.parametrize("field", ["prompt", "label", "response", "group", "components", "more"])
def test_values_within_values_are_read_or_one_line(field: str, depth: int, tmp_path: Path) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        nested = opening * depth + "1" + closing * depth
        row = json.dumps({"group": 1, "reward": 1.0, field: "@"}).replace('"@"', nested)
        for name, text in (("a.jsonl", row + "\n"), ("a.json", f"[\n{row}]")):
            (tmp_path / name).write_text(text, encoding="utf-8")
            for label in (field, f"{field}.a.a"):
                with suppress(RecordError):
                    list(read(tmp_path / name, options=ReadOptions(label=label)))


def _repeated(text: str, rows: int) -> "pa.Array":
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


_MANY = {"group": [1] * 20_000, "reward": [0.0] * 20_000}
_LONG = _repeated("a" * 10**6, 20_000)
TABLES = {
    "a text, repeated": {**_MANY, "response": _LONG},
    "a status, repeated": {**_MANY, "status": _LONG},
    "a prompt, repeated": {**_MANY, "step": [1] * 20_000, "prompt": _LONG, "completion": _LONG},
    "rows without end": {"group": pa.array([1] * 3_000_000), "reward": pa.array([0.0] * 3_000_000)},
    "one huge text": {"group": [1] * 2, "reward": [0.0] * 2, "response": ["a" * 10**8, "b"]},
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_not_far_more_than_its_file(name: str, tmp_path: Path) -> None:
    path, table = tmp_path / "a.parquet", pa.table(TABLES[name])
    pq.write_table(table, path, compression="zstd")
    if name == "rows without end" and 200 * path.stat().st_size > table.num_rows:
        pytest.skip("this pyarrow starts a page every 20,000 rows, which take their room")
    assert "times its size" in refused(path)


@pytest.mark.parametrize("depth", [50, 5000])
def test_columns_within_columns_are_read_or_one_line(depth: int, tmp_path: Path) -> None:
    kind: pa.DataType = pa.int32()
    for _ in range(depth if depth < 1000 else 10):
        kind = pa.struct([("a", kind)])
    columns = {"group": [1, 1], "reward": [0.0, 1.0], "prompt": pa.nulls(2, kind)}
    if depth > 1000:
        columns |= {f"c{at}": [0, 0] for at in range(depth)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", store_schema=False)
    if depth > 1000:
        refused(tmp_path / "a.parquet")
    else:
        assert [batch.sizes.tolist() for batch in read(tmp_path / "a.parquet")] == [[2]]


ODD = {
    "times beyond a year": pa.array([2**62] * 2, pa.timestamp("ms")),
    "decimals": pa.array([1, 2], pa.decimal256(70)),
    "unsigned": pa.array([2**64 - 1] * 2, pa.uint64()),
    "durations": pa.array([2**62] * 2, pa.duration("s")),
    "lists": pa.array([[1], None]),
    "maps": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
    "bytes": pa.array([b"\xff\x00", None]),
    "text that is none": pa.array([b"\xff\xfe", b"\xff"]).view(pa.string()),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("field", [*NAMED, "components", "weights"])
def test_a_column_of_an_odd_kind_is_read_or_one_line(field: str, name: str, tmp_path: Path) -> None:
    columns = {"group": [1, 1], "reward": [0.0, 1.0], field: ODD[name]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    for options in (None, ReadOptions(label=field)):
        with suppress(RecordError):
            list(read(tmp_path / "a.parquet", options=options))


_CELLS = (
    b"group,reward\n1," + b"9" * 2_000_000,
    b'group,reward\n1,"' + b"a\n" * 999_999,
    b"g" + b"," * 2_000_000,
)


@pytest.mark.parametrize("text", _CELLS, ids=("cell", "quoted", "header"))
def test_a_cell_has_an_end(text: bytes, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("search_to_signal.audit.importers.streams._LONGEST", 1_000_000)
    (tmp_path / "a.csv").write_bytes(text)
    assert "unreadable from here on" in refused(tmp_path / "a.csv")


NAMES = ("a.jsonl", "a.json", "a.csv", "a.parquet", "a.pt", "a.sqlite", "a.jsonl.gz")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_file_is_not_opened(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    assert "only regular files are read" in refused(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "only regular files are read" in refused(path)
    path.unlink()
    path.symlink_to(path)
    refused(path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        monkeypatch.chdir(tmp_path)
        made.bind(name)
    refused(path)


def test_a_pipe_among_logs_is_not_waited_for(tmp_path: Path) -> None:
    metadata = logs.openevolve_checkpoint(tmp_path)
    os.mkfifo(metadata.parent / "programs" / "pipe.json")
    with pytest.raises(RecordError, match="only regular files are read"):
        list(read(metadata))
    good = tmp_path / "good"
    logs.jsonl(good / "1.jsonl", logs.neutral_rows())
    os.mkfifo(good / "2.jsonl")
    (good / "loop").symlink_to(good)
    assert sum(len(batch.step) for batch in read(good)) == 2


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
