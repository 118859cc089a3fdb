"""Directories of logs: what belongs to a log is read, and what is none is said, such as files of scalars."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command import Command
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal import audit
from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.cli import main

pytestmark = pytest.mark.slow


def rows_of_step(step: int) -> list[dict[str, Any]]:
    return [
        {"group": f"{step}-{row // 2}", "step": step, "reward": float(row), "advantage": 0.0}
        for row in range(4)
    ]


def test_packed_files_of_a_directory_are_read_with_the_others(tmp_path: Path) -> None:
    for step in range(3):
        logs.jsonl(tmp_path / f"{step}.jsonl", rows_of_step(step))
    for step, kept in ((1, False), (2, True)):
        path = tmp_path / f"{step}.jsonl"
        (tmp_path / f"{step}.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
        if not kept:
            path.unlink()
    read = [(step, len(batch.step)) for batch in audit.read(tmp_path) for step in np.unique(batch.step)]
    assert read == [(0, 2), (1, 2), (2, 2)]
    path = tmp_path / "a.csv"
    path.write_text(f"group,reward,response\na,1,{'x' * 200_000}\na,0,y\n", encoding="utf-8")
    (batch,) = audit.read(path)
    assert batch.reward.tolist() == [1.0, 0.0]


def test_other_logs_of_a_directory_are_counted(tmp_path: Path, printed: Printed) -> None:
    logs.jsonl(tmp_path / "a.jsonl", rows_of_step(0))
    (tmp_path / "b.csv").write_text("group,reward\na,1\na,0\n", encoding="utf-8")
    (tmp_path / "notes.csv").write_text("day,what\n1,begun\n", encoding="utf-8")
    for named in (None, "neutral-jsonl"):
        (batch,) = audit.read(tmp_path, named)
        assert [note.key for note in batch.assumptions] == ["other_files", "no_rollouts"]
        assert [note.counts for note in batch.assumptions] == [{"files": 1}] * 2
    assert "other files of the directory hold rollouts too" in printed(tmp_path)
    # It would change nothing, and is said so with the formats that take one.
    log = logs.jsonl(tmp_path / "1" / "a.jsonl", rows_of_step(0))
    with pytest.raises(ConfigError, match="neutral-jsonl already says what a group is.*trl"):
        list(audit.read(log, options=audit.ReadOptions(group_size=2)))
    for name, rows in (("a", rows_of_step(1)[::2]), ("b", rows_of_step(1)[1::2])):
        logs.jsonl(tmp_path / "2" / f"{name}.jsonl", rows)
    findings = audit.audit(audit.read(tmp_path / "2"))
    assert audit.conclusions(findings)[0] == "2 groups with 4 completions in 1 step (groups: 2 of 2)."
    assert "joined_files" in [note.key for note in findings.assumptions]


JUNK = {
    "metrics.jsonl": '{"step": 0, "loss": NaN}\n',
    "0_metadata.json": '{"model": "m", "seed": 1}',
    "config.json": '{\n  "model_type": "m"\n}',
    "trainer_state.json": '{\n  "log_history": []\n}',
    "zz_progress.csv": "step,loss\n1,0.5\n",
    "empty.jsonl": "",
    "half.json": '[{"group": 1, "rew',
    "README.md": "# a run",
}


@pytest.mark.parametrize("name", ["rollouts.jsonl", "0.jsonl", "zzz.csv", "rollouts.parquet", "r.jsonl.gz"])
@pytest.mark.parametrize("mapped", [False, True])
def test_files_that_are_no_rollouts_stop_no_directory(
    name: str, mapped: bool, tmp_path: Path, s2s: Command
) -> None:
    for junk, text in JUNK.items():
        (tmp_path / junk).write_text(text, encoding="utf-8")
    rows = [
        {("uid" if mapped and key == "group" else key): value for key, value in row.items()}
        for step in range(2)
        for row in rows_of_step(step)
    ]
    if name.endswith("csv"):
        lines = [rows[0], *(row.values() for row in rows)]
        text = "\n".join(",".join(map(str, line)) for line in lines)
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    elif name.endswith("parquet"):
        logs.parquet(tmp_path / name, {key: [row[key] for row in rows] for key in rows[0]})
    else:
        plain = logs.jsonl(tmp_path / name.removesuffix(".gz"), rows)
        if name.endswith(".gz"):
            (tmp_path / name).write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
    out = s2s("audit", tmp_path, *["--map", "group=uid"] if mapped else []).out
    assert "4 groups with 8 completions in 2 steps (groups: 4 of 2)." in out
    assert "are left out: 0_metadata.json, config.json, empty.jsonl and others (5 files)" in out
    assert "Numbers per step (metrics.jsonl, zz_progress.csv)" in out


@pytest.mark.parametrize("above", [0, 1, 2])
def test_directories_of_versions_are_read_in_order(above: int, tmp_path: Path, printed: Printed) -> None:
    rollout = logs.areal(tmp_path / "logs" / "trial", (3, 10), range(3)).parents[1]
    place = (rollout, *rollout.parents)[above]
    for options in ([], ["--map", "group=task_id,response=completion"]):
        out = printed(place, *options)
        assert "6 groups with 24 completions" in out
        assert "2 of 6 groups (33.3 %) are dead" in out
    assert [int(step) for batch in audit.read(place) for step in np.unique(batch.step)] == [3, 10]
    assert "3 groups with 12 completions in 1 step (groups: 3 of 4)." in printed(rollout / "10")


def test_directories_of_unknown_files_name_one(tmp_path: Path, printed: Printed) -> None:
    for version in ("3", "4"):
        logs.jsonl(tmp_path / version / "300.jsonl", [{"task_id": 1, "sample": 0, "correct": 0.5}])
    err = printed(tmp_path, code=5)
    assert str(tmp_path / "3" / "300.jsonl") in err
    assert "task_id, sample, correct" in err
    assert "--map reward=COLUMN,group=task_id" in err


@pytest.mark.parametrize("names", [("run1", "run2"), ("baseline", "ours"), ("train", "eval")])
def test_directories_of_several_runs_are_named(
    names: tuple[str, str], tmp_path: Path, printed: Printed
) -> None:
    for name in names:
        logs.jsonl(tmp_path / name / "log" / "rollouts.jsonl", rows_of_step(0))
    err = printed(tmp_path, code=5)
    assert all(str(tmp_path / name / "log") in err for name in names)
    assert main(["audit", str(tmp_path / names[0])]) == 0


def test_a_table_of_any_name_is_known_by_its_columns(tmp_path: Path, printed: Printed) -> None:
    """As trackio stores TRL's completions: a directory for each step, and a file without a name."""
    for step in (1, 2):
        (tmp_path / "media" / str(step)).mkdir(parents=True)
        logs.trl(tmp_path, step).rename(tmp_path / "media" / str(step) / "0a1b2c.parquet")
    out = printed(tmp_path / "media")
    assert "Read as trl." in out
    assert "in 2 steps" in out


def test_a_data_set_of_hugging_face_says_how_to_give_it(tmp_path: Path, printed: Printed) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}', encoding="utf-8")
    (tmp_path / "train" / "dataset_info.json").write_text("{}", encoding="utf-8")
    (tmp_path / "train" / "data-00000-of-00001.arrow").write_bytes(b"\xff\xff\xff\xff")
    assert "to_parquet(FILE), and give that file" in printed(tmp_path, code=5)
    rows = rows_of_step(0)
    logs.parquet(tmp_path / "b" / "train-00000.parquet", {key: [row[key] for row in rows] for key in rows[0]})
    assert main(["audit", str(tmp_path / "b")]) == 0


NAN = float("nan")


def history(norms: list[Any]) -> list[dict[str, Any]]:
    """A row per step, and one of an evaluation."""
    rows = [{"step": at, "loss": 0.1, "grad_norm": norm, "reward": 0.5} for at, norm in enumerate(norms, 1)]
    return [*rows, {"step": len(norms), "eval_loss": 0.2, "epoch": 0.5}]


def document(path: Path, given: Any, indent: int | None = 2) -> Path:
    path.write_text(json.dumps(given, indent=indent), encoding="utf-8")
    return path


def text(path: Path, given: str) -> Path:
    path.write_text(given, encoding="utf-8")
    return path


FILES: dict[str, Any] = {
    "trainer_state.json": lambda path: document(
        path, {"global_step": 3, "log_history": history([1.0, NAN, NAN])}
    ),
    "wandb-summary.json": lambda path: document(
        path, {"_step": 3, "_wandb": {"runtime": 1}, "train/loss": 0.1, "train/grad_norm": "NaN"}, None
    ),
    "metrics.jsonl": lambda path: logs.jsonl(path, history([1.0, NAN, 2.0])),
    "verl.jsonl": lambda path: logs.jsonl(
        path, [{"step": at, "data": {"actor/pg_loss": 0.0, "actor/grad_norm": NAN}} for at in range(3)]
    ),
    "experiment_log.jsonl": lambda path: logs.jsonl(
        path, [{"step": at, "actor": {"grad_norm": NAN}, "reward": {"mean": 0.1}} for at in range(3)]
    ),
    "progress.csv": lambda path: text(path, "step,loss,grad_norm\n1,0.1,nan\n2,0.1,1\n"),
    "log_history.json": lambda path: document(path, history([1.0, NAN])),
    "generations.log": lambda path: text(path, "[prompt] a\n[output] b\n[score] 1\n"),
    "events.out.tfevents.1700000000.host.1.0": lambda path: text(path, "\x18\x00\x00"),
}


# A few answers of a validation as text, and an event file of which the first record is cut.
WITHOUT = ("generations.log", "events.out.tfevents.1700000000.host.1.0")


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_scalars_says_what_writes_rollouts(name: str, tmp_path: Path, printed: Printed) -> None:
    path = FILES[name](tmp_path / name)
    for place in (path, tmp_path):
        told = printed(place, code=5 if name in WITHOUT else 0)
        if name in WITHOUT:
            assert "no rollouts" in told or "record 1 cannot be read" in told
            continue
        assert "no rollouts" in told
        assert "Norm of the gradient is NaN or infinite" in told or "experiment" in name
        assert any(setting in told for setting in ("log_completions=True", "rollout_data_dir"))


def test_an_importer_refuses_scalars(tmp_path: Path) -> None:
    rows = history([NAN if at % 13 == 5 else 1.0 for at in range(40)])
    path = logs.jsonl(tmp_path / "metrics.jsonl", [row | {"entropy": NAN} for row in rows])
    with pytest.raises(RecordError) as refused:
        list(audit.read(path))
    said = "; grad_norm is NaN in 3 of 40 steps, entropy is NaN in 41 of 41 steps; "
    assert said in str(refused.value)
    for name in ("log_completions", "rollout_data_dir", "GroupRecorder"):
        assert name in str(refused.value)


def test_a_directory_of_scalars_alone(tmp_path: Path, printed: Printed) -> None:
    for name, build in FILES.items():
        (tmp_path / "logs").mkdir(exist_ok=True)
        build(tmp_path / "logs" / name)
    out = printed(tmp_path)
    assert "Norm of the gradient is NaN or infinite" in out
    assert "Note: " in out
    assert "record 1 cannot be read" in out


@pytest.mark.parametrize(
    "rows",
    [
        [{"points": 1.0}],
        [{"prompt_id": at // 4, "score": 1.0, "iteration": 1} for at in range(8)],
        [{"iteration": at // 4, "score": 1.0} for at in range(16)],
        [{"step": 1, "question": "a", "answer": "b", "score": 1.0}],
        [{"task_id": 1, "step": 1, "score": 0.0}],
    ],
)
def test_rows_of_completions_are_none(rows: list[dict[str, Any]], tmp_path: Path, printed: Printed) -> None:
    for place in (logs.jsonl(tmp_path / "a.jsonl", rows), tmp_path):
        assert re.search(r"--map reward=\w+,group=\w+", printed(place, code=5))
