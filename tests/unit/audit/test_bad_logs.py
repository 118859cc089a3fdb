"""Bad input ends in one clear line, and nothing of the log is changed or lost."""

import gzip
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit import logs

from search_to_signal.audit.importers import read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.base.errors import ConfigError, RecordError

Build = Callable[[Path], Path]
LINES: Sequence[Build] = (
    logs.verl_v1,
    logs.verl_v0,
    logs.prime_traces,
    logs.prime_tokens,
    logs.tinker,
    logs.ttt,
    logs.openevolve,
)


def line_of(path: Path, format: str | None = None, **options: Any) -> str:
    """The one line with which a log is refused; it names the path."""
    with pytest.raises(RecordError) as caught:
        list(read(path, format, ReadOptions(**options)))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def rows(*records: Any, name: str = "x.jsonl") -> Build:
    return lambda directory: logs.jsonl(directory / name, records)


def columns(**of: Any) -> Build:
    return lambda directory: logs.parquet(directory / "x_00001.parquet", of)


def holding(content: bytes, name: str = "log", after: Build | None = None) -> Build:
    """A file of these bytes, or a log with these bytes behind it."""

    def build(directory: Path) -> Path:
        path = after(directory) if after else directory / name
        path.write_bytes((path.read_bytes() if after else b"") + content)
        return path

    return build


def without(build: Build, field: str) -> Build:
    """A log whose third row has nothing in a field."""

    def built(directory: Path) -> Path:
        path = build(directory)
        records = [json.loads(line) for line in path.read_text().splitlines()]
        records[2][field] = None
        return logs.jsonl(path, records)

    return built


def half_a_database(directory: Path) -> Path:
    path = logs.shinka(directory)
    path.write_bytes(path.read_bytes()[:5000])
    return path


def another_database(directory: Path) -> Path:
    with sqlite3.connect(directory / "other.sqlite") as connection:
        connection.execute("CREATE TABLE programs (id TEXT)")
    connection.close()
    return directory / "other.sqlite"


NO_GROUP = r":3: a value does not fit its column in this format \(ValueError: no {}, by"
ONE = {"group": 1, "reward": 1.0}
NAMES = [{"input": "a", "output": "b", "score": 1.0, "step": 1, f"id{row}": 1} for row in range(300)]
OBJECTIVES = b'[{"sample_order": 1, "function": "f", "score": [-1.0, -2.0], "program": ""}]'
SEVERAL: Build = lambda directory: logs.slime(directory, reward={"acc": 1.0, "style": 0.5})  # noqa: E731
# A log, what is asked of its reader, and what its one line says.
REFUSED: dict[str, tuple[Build, dict[str, Any], str]] = {
    "columns of no format": (
        rows({"input": "a", "output": "b", "score": 1.0, "colour": "red"}),
        {},
        "input, output, score, colour.*verl also needs step",
    ),
    "a table of no format": (
        columns(step=[1], prompt=["a"], reward=[1.0]),
        {"format": "trl"},
        "also needs.*completion",
    ),
    "a table without any reward": (
        columns(step=[1], prompt=["a"], completion=["b"], advantage=[0.5], source=["c"]),
        {"format": "trl"},
        "no column of rewards",
    ),
    "a table without rows": (columns(group=[], reward=[]), {}, "no groups"),
    "another container than the named format": (logs.verl_v1, {"format": "trl"}, "Parquet"),
    "a weight of no reward": (logs.trl, {"weights": {"fromat": 2.0}}, "no rewards fromat"),
    "a component that is none": (logs.trl, {"components": ("lenght",)}, "no rewards lenght"),
    "a group size that does not divide": (logs.trl, {"group_size": 3}, "from row 0 on"),
    **{
        f"a class of no column in {build.__name__}": (build, {"label": "klass"}, "no column klass")
        for build in (logs.trl, logs.verl_v1, logs.slime, logs.shinka, logs.llm4ad)
    },
    "a row of verl without uid": (without(logs.verl_v1, "uid"), {}, NO_GROUP.format("uid")),
    "a row of verl without input": (without(logs.verl_v0, "input"), {}, NO_GROUP.format("input")),
    "several rewards": (SEVERAL, {}, "acc, style"),
    "several objectives": (holding(OBJECTIVES, "samples_1~200.json"), {}, "2 objectives"),
    "a misspelt reward": (rows(ONE, {"group": 1, "rewad": 0.5}), {}, "x.jsonl:2: not a rollout"),
    "a reward that is no number": (rows(ONE, {"group": 1, "reward": "high"}), {}, "x.jsonl:2: .*reward"),
    # They would make a table as large as the square of the log.
    "a name for every row": (rows(*NAMES, name="1.jsonl"), {}, "300 different names"),
    **{
        f"a table of W&B {number}": (rows(table, name="x.table.json"), {}, "")
        for number, table in enumerate(
            ({"columns": ["a"], "data": [[1]]}, {"columns": 3, "data": []}, {"columns": ["a"], "data": [[]]})
        )
    },
    "half a database": (half_a_database, {}, ""),
    "a database of something else": (another_database, {}, "programs.code"),
    **{
        f"a line that is no record: {line[:9]!r}": (holding(line + b"\n", after=logs.verl_v1), {}, ":6: ")
        for line in (b"[1, 2]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"a": 1} {"b": 2}')
    },
    **{
        f"no groups at all: {content!r}": (holding(content), {}, "")
        for content in (b"", b"\n\n", b"[]", b'{"metadata": {}, "traces": []}\n', b"nonsense", b"PK\x03\x04")
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_one_line(name: str, tmp_path: Path) -> None:
    build, options, says = REFUSED[name]
    assert re.search(says, line_of(build(tmp_path), **options))


@pytest.mark.parametrize("keep", [10, 500, -1])
def test_a_truncated_table_gives_one_line(keep: int, tmp_path: Path) -> None:
    path = logs.trl(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    assert "Parquet" in line_of(path)
    with pytest.raises(RecordError, match="not a complete Parquet file"):
        list(read(tmp_path))
    logs.trl(tmp_path, 20)
    (batch,) = read(tmp_path)
    assert batch.step.tolist() == [20, 20]
    (left,) = [note for note in batch.assumptions if note.key == "no_rollouts"]
    assert path.name in left.says


@pytest.mark.parametrize("build", LINES)
@pytest.mark.parametrize("lost", [1, 2, 20])
@pytest.mark.parametrize("packed", [False, True])
def test_half_a_line_costs_this_line(build: Build, lost: int, packed: bool, tmp_path: Path) -> None:
    whole = build(tmp_path)
    lines = whole.read_bytes().splitlines(keepends=True)
    # A file of one line has another before it.
    text = b"".join(lines if len(lines) > 1 else lines * 2)
    half = text if lost == 1 else text[:-lost]
    path = whole.with_name(whole.name + ".gz") if packed else whole
    whole.unlink()
    path.write_bytes(gzip.compress(half)[:-6] if packed else half)
    counted = [sum(len(batch.reward) for batch in read(path))]
    notes = [note.key for batch in read(path) for note in batch.assumptions]
    assert ("cut_end" in notes) == (packed or lost > 1)
    path.unlink()
    kept = text.splitlines(keepends=True)
    whole.write_bytes(b"".join(kept[:-1] if lost > 1 else kept))
    counted.append(sum(len(batch.reward) for batch in read(whole)))
    assert counted[0] == counted[1]


@pytest.mark.parametrize("build", LINES)
def test_half_a_line_in_the_middle_is_named(build: Build, tmp_path: Path) -> None:
    path = build(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[0][:-20], *lines]))
    assert f"{path}:{len(lines) + 1}: not JSON" in line_of(path)


@pytest.mark.parametrize("end", ["1,1", "1,1,", '1,1,"0.5'])
def test_what_is_whole_before_the_damage_is_read(end: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"group,step,reward\n1,1,0\n1,1,1\n{end}", encoding="utf-8")
    (batch,) = read(path)
    assert len(batch.reward) == 2 + (end == "1,1,")
    assert ("cut_end" in [note.key for note in batch.assumptions]) == (end != "1,1,")


def test_what_comes_before_the_damage_is_read(tmp_path: Path) -> None:
    path = logs.tinker(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"half\n')
    stream = read(path, options=ReadOptions(rows=2))
    assert next(stream).sizes.tolist() == [2]
    with pytest.raises(RecordError):
        list(stream)
    path = tmp_path / "trajectories.jsonl.gz"
    path.write_bytes(gzip.compress(logs.ttt(tmp_path).read_bytes() * 50))
    assert sum(len(batch.reward) for batch in read(path)) == 250
    path.write_bytes(path.read_bytes()[:-8] + b"\0" * 8)
    assert "unreadable from here on" in line_of(path)


def test_what_holds_no_log_says_what_is_there(tmp_path: Path) -> None:
    assert "holds no log of rollouts, only no file" in line_of(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert "only 1 .safetensors: give the file or directory that" in line_of(tmp_path)
    assert "No such file" in line_of(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert "only regular files are read" in line_of(tmp_path / "pipe")


@pytest.mark.parametrize("place", [".", "cohort"])
def test_a_directory_of_our_runs_names_one(place: str, tmp_path: Path) -> None:
    run = tmp_path / "cohort" / "native-s42"
    for name in ("frozen-s42", run.name):
        run.with_name(name).mkdir(parents=True)
        logs.own_records(run.with_name(name))
    logs.jsonl(tmp_path / "BLOCKS.jsonl", [{"path": "x", "size": 1}])
    logs.jsonl(tmp_path / "cohort" / "runs.json", [{"runs": []}])
    assert line_of(tmp_path / place).endswith(f"such as {run}")


def test_rewards_that_are_no_numbers_are_kept_and_counted(tmp_path: Path) -> None:
    given = ({"group": 1, "reward": reward} for reward in (1.0, math.nan, 10**400, None))
    (groups,) = read(rows(*given)(tmp_path))
    assert groups.scored.tolist() == [True, False, False, False]
    assert math.isinf(groups.reward[2])
    (unscored,) = [one for one in groups.assumptions if one.key == "unscored"]
    assert unscored.counts == {"rewards": 4, "NaN": 2, "infinite": 1}
    (groups,) = read(SEVERAL(tmp_path), options=ReadOptions(reward="acc"))
    assert groups.reward.tolist() == [1.0] * 4
    assert groups.metrics["style"].tolist() == [0.5] * 4
    (groups,) = read(REFUSED["several objectives"][0](tmp_path), options=ReadOptions(reward="1"))
    assert groups.reward.tolist() == [-2.0]
    (groups,) = read(rows(ONE, {**ONE, "reward": None})(tmp_path))
    assert len(groups.reward) == 2
    (groups,) = read(logs.trl(tmp_path, prompts=["a", "b", "b", "b"]))
    assert groups.sizes.tolist() == [1, 3]
    with pytest.raises(ConfigError, match="choose one of trl"):
        list(read(tmp_path, "TRL"))


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = logs.trl(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match="pip install pyarrow"):
        list(read(path))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.slow
def test_memory_stays_flat_on_a_large_log(kind: str, tmp_path: Path) -> None:
    rows, text = 3000, "x" * 40_000
    if kind == "jsonl":
        path = tmp_path / "x.jsonl"
        with path.open("w") as file:
            for row in range(rows):
                file.write(json.dumps({"group": row // 4, "reward": 0.5, "response": f"{row}{text}"}) + "\n")
    else:
        path = tmp_path / "x.parquet"
        columns = {"group": [row // 4 for row in range(rows)], "reward": [0.5] * rows}
        logs.parquet(path, {**columns, "notes": [f"{row}{text}" for row in range(rows)]})
    code = (
        "import re, sys, pathlib, pyarrow.parquet\n"
        "from search_to_signal.audit.importers import read\n"
        "from search_to_signal.audit.importers.base import ReadOptions\n"
        "status = pathlib.Path('/proc/self/status')\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', status.read_text())[1]) // 1024\n"
        "before = peak()\n"
        "count = sum(len(b.reward) for b in read(pathlib.Path(sys.argv[1]), options=ReadOptions(rows=64)))\n"
        "print(count, peak() - before)\n"
    )
    count, grown = map(
        int, subprocess.check_output([sys.executable, "-c", code, str(path)], text=True).split()
    )
    assert count == rows
    assert grown < 60
