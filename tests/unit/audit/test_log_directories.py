"""Directories of logs: every file that belongs to a log is read, and what is not is said."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.audit import logs

from search_to_signal import audit
from search_to_signal.cli import main
from search_to_signal.errors import ConfigError


def rows_of_step(step: int) -> list[dict[str, Any]]:
    """Two groups of two."""
    return [
        {"group": f"{step}-{row // 2}", "step": step, "reward": float(row), "advantage": 0.0}
        for row in range(4)
    ]


def test_packed_files_of_a_directory_are_read_with_the_others(tmp_path: Path) -> None:
    """Old steps may be packed; of a file and its packed copy one is read."""
    for step in range(3):
        logs.jsonl(tmp_path / f"{step}.jsonl", rows_of_step(step))
    for step, kept in ((1, False), (2, True)):
        path = tmp_path / f"{step}.jsonl"
        (tmp_path / f"{step}.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
        if not kept:
            path.unlink()
    read = [(step, len(batch.step)) for batch in audit.read(tmp_path) for step in np.unique(batch.step)]
    assert read == [(0, 2), (1, 2), (2, 2)]


def test_other_logs_of_a_directory_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One form is read, and how many files of others are not is said."""
    logs.jsonl(tmp_path / "a.jsonl", rows_of_step(0))
    (tmp_path / "b.csv").write_text("group,reward\na,1\na,0\n", encoding="utf-8")
    (tmp_path / "notes.csv").write_text("day,what\n1,begun\n", encoding="utf-8")
    for named in (None, "neutral-jsonl"):
        (batch,) = audit.read(tmp_path, named)
        assert [(note.key, note.counts) for note in batch.assumptions] == [("other_files", {"files": 1})]
    assert main(["audit", str(tmp_path)]) == 0
    assert "other files of the directory hold rollouts too" in capsys.readouterr().out


def test_a_group_size_is_refused_where_the_log_names_groups(tmp_path: Path) -> None:
    """It would change nothing, and is said so with the formats that take one."""
    log = logs.jsonl(tmp_path / "a.jsonl", rows_of_step(0))
    with pytest.raises(ConfigError, match="neutral-jsonl says what a group is.*trl"):
        list(audit.read(log, options=audit.ReadOptions(group_size=2)))


def test_a_step_in_two_files_is_told(tmp_path: Path) -> None:
    """Rows of a group may be split over them, and would count as two groups."""
    for name, rows in (("a", rows_of_step(1)[::2]), ("b", rows_of_step(1)[1::2])):
        logs.jsonl(tmp_path / f"{name}.jsonl", rows)
    found = audit.conclusions(audit.audit(audit.read(tmp_path)))
    assert any(line.startswith("1 step is in several files") for line in found)


def test_long_cells_of_a_csv_file_are_read(tmp_path: Path) -> None:
    """A response may be longer than a cell of Python's reader is by default."""
    path = tmp_path / "a.csv"
    path.write_text(f"group,reward,response\na,1,{'x' * 200_000}\na,0,y\n", encoding="utf-8")
    (batch,) = audit.read(path)
    assert batch.reward.tolist() == [1.0, 0.0]
