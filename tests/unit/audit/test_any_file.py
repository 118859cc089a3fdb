"""Files of anybody's own: CSV, JSON lists, columns that the caller names, packed files, an editor's mark."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.command import Command, Patch
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed, whole

from search_to_signal.audit.importers import find, read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.base.errors import ConfigError

# What nobody's framework calls its columns: two groups of two, interleaved, one reward missing.
ROWS: list[dict[str, Any]] = [
    {"prompt id": "a", "points": 0.25, "right": False, "kind": "x", "at": 7},
    {"prompt id": "b", "points": 0.5, "right": True, "kind": "y, z", "at": 7},
    {"prompt id": "a", "points": 1.0, "right": True, "kind": "x", "at": 7},
    {"prompt id": "b", "points": None, "right": True, "kind": "x", "at": 7},
]
NAMES = {"reward": "points", "group": "prompt id", "step": "at"}


def csv(path: Path, separator: str = ",", end: str = "\n") -> Path:
    """The rows as pandas' to_csv writes them: True and False as words, nothing for none."""

    def cell(value: Any) -> str:
        return "" if value is None else f'"{value}"' if separator in str(value) else str(value)

    lines = [list(ROWS[0]), *(list(row.values()) for row in ROWS)]
    path.write_text(
        "".join(separator.join(map(cell, line)) + end for line in lines), encoding="utf-8", newline=""
    )
    return path


def as_json(path: Path) -> Path:
    path.write_text(json.dumps(ROWS, indent=2), encoding="utf-8")
    return path


def as_parquet(path: Path) -> Path:
    return logs.parquet(path, {name: [row[name] for row in ROWS] for name in ROWS[0]})


FILES: dict[str, Callable[[Path], Path]] = {
    "a.csv": csv,
    "a.tsv": lambda path: csv(path, "\t"),
    "semicolons.csv": lambda path: csv(path, ";", "\r\n"),
    "a.json": as_json,
    "a.jsonl": lambda path: logs.jsonl(path, ROWS),
    "a.parquet": as_parquet,
}


@pytest.mark.parametrize("name", FILES)
def test_the_caller_says_what_columns_mean(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name)
    groups = whole(path, ReadOptions(columns=NAMES, label="kind"))
    assert groups.sizes.tolist() == [2, 2]
    assert groups.reward[:3].tolist() == [0.25, 1.0, 0.5]
    assert groups.scored.tolist() == [True, True, True, False]
    assert groups.step.tolist() == [7, 7]
    assert [groups.label.names[code] for code in groups.label.code] == ["x", "x", "y, z", "x"]
    # A column of true and false counts as 1 and 0, whatever the container writes for them.
    path = FILES[name](tmp_path / name)
    columns = {**NAMES, "reward": "right"}
    assert whole(path, ReadOptions(columns=columns)).reward.tolist() == [0.0, 1.0, 1.0, 1.0]


def test_columns_within_columns_chats_and_parts(tmp_path: Path) -> None:
    rows = [
        {"prompt": [{"role": "user", "content": text}], "scores": {"total": float(at)}}
        for at, text in enumerate("aab")
    ]
    columns = {"group": "prompt", "reward": "scores.total"}
    groups = whole(logs.jsonl(tmp_path / "a.jsonl", rows), ReadOptions(columns=columns))
    assert groups.sizes.tolist() == [2, 1]
    assert groups.reward.tolist() == [0.0, 1.0, 2.0]
    # Named by --component with their weights, as for TRL; the audit then tries each without.
    rows = [{"group": 1, "right": float(at % 2), "style": at / 4} for at in range(4)]
    options = ReadOptions(components=("right", "style"), weights={"right": 2.0}, columns={"group": "group"})
    groups = whole(logs.jsonl(tmp_path / "a.jsonl", rows), options)
    assert groups.reward.tolist() == [0.0, 2.25, 0.5, 2.75]
    assert dict(groups.weights) == {"right": 2.0, "style": 1.0}


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: pa.compress(data, "zstd", asbytes=True)])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_a_packed_file_is_what_it_holds(name: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    plain = FILES[name](tmp_path / name)
    packed = tmp_path / f"{name}.packed.zst" if name != "a.csv" else tmp_path / "a.csv.zst"
    packed.write_bytes(pack(plain.read_bytes()))
    options = ReadOptions(columns=NAMES)
    assert whole(packed, options).reward[:3].tolist() == whole(plain, options).reward[:3].tolist()


def test_zstd_is_read_as_far_as_it_goes_or_says_what_to_install(
    tmp_path: Path, s2s: Command, monkeypatch: Patch
) -> None:
    path = tmp_path / "a.jsonl.zst"
    rows = b"".join(b'{"group": %d, "reward": %d.5}\n' % (row // 4, row) for row in range(100_000))
    path.write_bytes(pa.compress(rows, "zstd", asbytes=True)[:-100])
    said = s2s("audit", path)
    assert "the end of the file was cut" in said.out
    path.write_bytes(path.read_bytes()[:5000] + b"x" * 20 + path.read_bytes()[5020:])
    said = s2s("audit", path, code=5)
    assert said.err.count("\n") == 1
    path.write_bytes(pa.compress(b'{"group": 1, "reward": 1.0}\n', "zstd", asbytes=True))
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    err = s2s("audit", path, code=2).err
    assert err.count("\n") == 1
    assert "search-to-signal[parquet]" in err


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_an_editors_mark_is_no_part_of_the_log(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / name)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert whole(path, ReadOptions(columns=NAMES)).sizes.tolist() == [2, 2]


def test_the_neutral_columns_need_no_map(tmp_path: Path) -> None:
    rows = [{"group": 1, "reward": 0.0}, {"group": 1, "reward": 1.0}]
    listed = tmp_path / "a.json"
    listed.write_text(json.dumps(rows), encoding="utf-8")
    table = tmp_path / "b.csv"
    table.write_text("group,reward\n1,0\n1,1.0\n", encoding="utf-8")
    assert [find(path)[0].name for path in (listed, table)] == ["neutral-json", "neutral-csv"]
    assert [whole(path).reward.tolist() for path in (listed, table)] == [[0.0, 1.0]] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompt id,points,at\na,0.5,1\na,high,1\n", "a.csv:3: not a rollout (points: "),
        ("prompt id,points,at\na,0.5\n", "a.csv:2: 2 cells under 3 names"),
        ("prompt id,points,at\n,0.5,1\n", "a.csv:2: not a rollout (prompt id: no group"),
        ("prompt id,points,at,at\na,0.5,1,1\n", "two columns have one name"),
        ('prompt id,points,at\n"a,0.5,1\n', "a.csv:2: unreadable from here on"),
        ("prompt,points,at\na,0.5,1\n", "has no column prompt id: choose one of prompt, points, at"),
        ("prompt id,points,at\n", "holds no groups"),
    ],
)
def test_a_bad_table_is_one_line(text: str, said: str, tmp_path: Path, printed: Printed) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    given = ",".join(f"{name}={column}" for name, column in NAMES.items())
    err = printed(path, "--map", given, "--out", str(tmp_path / "out"), code=5)
    assert said in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", ["reward", "=a", "reward=", "rewad=points", "reward=points,"])
def test_a_map_that_is_none_is_refused(given: str, tmp_path: Path, s2s: Command) -> None:
    said = s2s("audit", csv(tmp_path / "a.csv"), "--map", given, code=2)
    assert said.err.count("\n") == 1


def test_the_map_is_named_where_it_is_needed(tmp_path: Path, printed: Printed) -> None:
    path = csv(tmp_path / "a.csv")
    assert "--map reward=COLUMN,group=COLUMN" in printed(path, code=5)
    assert "1 of 2 groups (50.0 %) are dead" in printed(path, "--map", "reward=right,group=prompt id")
    with pytest.raises(ConfigError, match="the columns of verl are known"):
        list(read(logs.verl_v1(tmp_path / "1"), "verl", ReadOptions(columns=NAMES)))


def test_a_directory_of_weights_and_biases_as_it_is(tmp_path: Path) -> None:
    run = tmp_path / "wandb" / "offline-run-20260101_000000-abcd1234"
    logs.trl_table(run / "files")
    (tmp_path / "wandb" / "latest-run").symlink_to(run)
    for place in (tmp_path, tmp_path / "wandb", run):
        form, files = find(place)
        assert (form.name, len(files)) == ("trl-wandb", 1)
    other = tmp_path / "wandb" / "run-20260102_000000-efgh5678"
    logs.trl_table(other / "files")
    with pytest.raises(Exception, match="holds 2 runs: give one of .*abcd1234, run-.*efgh5678"):
        find(tmp_path)
