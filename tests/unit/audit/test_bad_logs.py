"""Bad input ends in one clear line, and nothing of the log is changed or lost."""

import gzip
import json
import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

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


def line_of(path: Path, options: ReadOptions | None = None, format: str | None = None) -> str:
    """The one line with which a log is refused; it names the path."""
    with pytest.raises(RecordError) as caught:
        list(read(path, format, options))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_that_is_none_names_its_columns_and_what_is_missing(tmp_path: Path) -> None:
    path = logs.jsonl(tmp_path / "x.jsonl", [{"input": "a", "output": "b", "score": 1.0, "colour": "red"}])
    line = line_of(path)
    assert "input, output, score, colour" in line
    assert "verl also needs step" in line


def test_a_table_that_is_none_names_its_columns_and_what_is_missing(tmp_path: Path) -> None:
    path = logs.parquet(tmp_path / "x.parquet", {"step": [1], "prompt": ["a"], "reward": [1.0]})
    assert "completion" in line_of(path, format="trl").split("also needs")[1]


@pytest.mark.parametrize(
    "options", [ReadOptions(weights={"fromat": 2.0}), ReadOptions(components=("lenght",))]
)
def test_a_reward_that_does_not_exist_is_named(options: ReadOptions, tmp_path: Path) -> None:
    assert (
        "no rewards fromat" in (line := line_of(logs.trl(tmp_path), options)) or "no rewards lenght" in line
    )


def test_a_log_without_any_reward_says_so(tmp_path: Path) -> None:
    """It is not asked for names of components that it cannot have."""
    columns = {"step": [1], "prompt": ["a"], "completion": ["b"], "advantage": [0.5], "source": ["c"]}
    line = line_of(logs.parquet(tmp_path / "completions_00001.parquet", columns))
    assert "no column of rewards" in line


@pytest.mark.parametrize(("build", "lost"), [(logs.verl_v1, "uid"), (logs.verl_v0, "input")])
def test_a_row_that_names_no_group_is_none_of_its_own(build: Build, lost: str, tmp_path: Path) -> None:
    """Rows of verl without what the others are grouped by were groups that nobody sampled, and got advice."""
    path = build(tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[2][lost] = None
    line = line_of(logs.jsonl(path, rows))
    assert f":3: a value does not fit its column in this format (ValueError: no {lost}, by" in line


@pytest.mark.parametrize(
    "table", [{"columns": ["a"], "data": [[1]]}, {"columns": 3, "data": []}, {"columns": ["a"], "data": [[]]}]
)
def test_a_table_of_something_else_gives_one_line(table: dict[str, object], tmp_path: Path) -> None:
    line_of(logs.jsonl(tmp_path / "x.table.json", [table]))


def test_a_named_format_of_another_container_is_said(tmp_path: Path) -> None:
    """A JSON Lines file read as TRL's: the line says what TRL's is."""
    assert "Parquet" in line_of(logs.verl_v1(tmp_path), format="trl")
    with pytest.raises(ConfigError, match="choose one of trl"):
        list(read(tmp_path, "TRL"))


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
def test_half_a_row_of_a_csv_file_costs_this_row(end: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"group,step,reward\n1,1,0\n1,1,1\n{end}", encoding="utf-8")
    (batch,) = read(path)
    assert len(batch.reward) == 2 + (end == "1,1,")
    assert ("cut_end" in [note.key for note in batch.assumptions]) == (end != "1,1,")


def test_groups_before_a_damaged_line_are_read(tmp_path: Path) -> None:
    path = logs.tinker(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"half\n')
    stream = read(path, options=ReadOptions(rows=2))
    assert next(stream).sizes.tolist() == [2]
    with pytest.raises(RecordError):
        list(stream)


@pytest.mark.parametrize("line", [b"[1, 2]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"a": 1} {"b": 2}'])
def test_a_line_that_is_no_record_gives_one_line(line: bytes, tmp_path: Path) -> None:
    path = logs.verl_v1(tmp_path)
    path.write_bytes(path.read_bytes() + line + b"\n")
    assert f"{path}:6: " in line_of(path)


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"[]", b'{"metadata": {}, "traces": []}\n', b"nonsense", b"PK\x03\x04"]
)
def test_no_groups_at_all_gives_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    line_of(path)


def test_a_table_without_rows_holds_no_groups(tmp_path: Path) -> None:
    path = logs.parquet(tmp_path / "x.parquet", {"group": [], "reward": []})
    assert "no groups" in line_of(path)


def test_a_directory_without_a_log_says_what_is_there(tmp_path: Path) -> None:
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
    rows = [{"group": 1, "reward": reward} for reward in (1.0, math.nan, 10**400, None)]
    (groups,) = read(logs.jsonl(tmp_path / "x.jsonl", rows))
    assert groups.scored.tolist() == [True, False, False, False]
    assert math.isinf(groups.reward[2])
    (unscored,) = [one for one in groups.assumptions if one.key == "unscored"]
    assert unscored.counts == {"rewards": 4, "NaN": 2, "infinite": 1}


def test_mixed_group_sizes_are_read_and_a_wrong_size_is_not(tmp_path: Path) -> None:
    path = logs.trl(tmp_path, prompts=["a", "b", "b", "b"])
    (groups,) = read(path)
    assert groups.sizes.tolist() == [1, 3]
    assert "from row 0 on" in line_of(path, ReadOptions(group_size=2))


@pytest.mark.parametrize("build", [logs.trl, logs.verl_v1, logs.slime, logs.shinka, logs.llm4ad])
def test_a_class_column_that_does_not_exist_is_named(build: Build, tmp_path: Path) -> None:
    assert "no column klass" in line_of(build(tmp_path), ReadOptions(label="klass"))


def test_several_rewards_ask_for_a_name(tmp_path: Path) -> None:
    path = logs.slime(tmp_path, reward={"acc": 1.0, "style": 0.5})
    assert "acc, style" in line_of(path)
    (groups,) = read(path, options=ReadOptions(reward="acc"))
    assert groups.reward.tolist() == [1.0] * 4
    assert groups.metrics["style"].tolist() == [0.5] * 4


def test_several_objectives_ask_for_one(tmp_path: Path) -> None:
    path = tmp_path / "samples_1~200.json"
    path.write_text(json.dumps([{"sample_order": 1, "function": "f", "score": [-1.0, -2.0], "program": ""}]))
    assert "2 objectives" in line_of(path)
    (groups,) = read(path, options=ReadOptions(reward="1"))
    assert groups.reward.tolist() == [-2.0]


def test_a_misspelt_reward_is_no_missing_reward(tmp_path: Path) -> None:
    first, second = {"group": 1, "reward": 1.0}, {"group": 1, "rewad": 0.5}
    path = tmp_path / "mine.jsonl"
    path.write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n", encoding="utf-8")
    assert "mine.jsonl:2: not a rollout" in line_of(path)
    path.write_text(f"{json.dumps(first)}\n{json.dumps({**first, 'reward': None})}\n", encoding="utf-8")
    assert [len(groups.reward) for groups in read(path)] == [2]


def test_a_row_that_breaks_the_neutral_schema_is_named(tmp_path: Path) -> None:
    path = logs.jsonl(tmp_path / "x.jsonl", [{"group": 1, "reward": 1.0}, {"group": 1, "reward": "high"}])
    line = line_of(path)
    assert f"{path}:2: " in line
    assert "reward" in line


def test_a_damaged_database_gives_one_line(tmp_path: Path) -> None:
    path = logs.shinka(tmp_path)
    path.write_bytes(path.read_bytes()[:5000])
    line_of(path)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE programs (id TEXT)")
    connection.close()
    assert "programs.code" in line_of(other)


def test_a_damaged_packed_log_gives_one_line(tmp_path: Path) -> None:
    path = tmp_path / "trajectories.jsonl.gz"
    path.write_bytes(gzip.compress(logs.ttt(tmp_path).read_bytes() * 50))
    assert sum(len(batch.reward) for batch in read(path)) == 250
    path.write_bytes(path.read_bytes()[:-8] + b"\0" * 8)
    assert "unreadable from here on" in line_of(path)


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = logs.trl(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match="pip install pyarrow"):
        list(read(path))


def test_a_name_for_every_row_gives_one_line(tmp_path: Path) -> None:
    """Names that are data would make a table as large as the square of the log."""
    rows = [{"input": "a", "output": "b", "score": 1.0, "step": 1, f"id{row}": 1} for row in range(300)]
    assert "300 different names" in line_of(logs.jsonl(tmp_path / "1.jsonl", rows))


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
