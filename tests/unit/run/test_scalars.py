"""Scalars while runs run: every recorded step once, outside of the records."""

from collections.abc import Callable
from pathlib import Path

import pytest

from search_to_signal.base import errors
from search_to_signal.base.errors import ConfigError
from search_to_signal.cli import running
from search_to_signal.cli.running import SCALARS, Scalars, require_tensorboard
from search_to_signal.records.reader import STEPS, read_records
from search_to_signal.records.schema import StepRecord

Written = list[tuple[str, float, int]]


class Notes:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.written: Written = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Keep one value."""
        self.written.append((tag, value, step))

    def flush(self) -> None:
        """Nothing is buffered."""


def test_each_recorded_step_is_written_once(make_run: Callable[..., Path], tmp_path: Path) -> None:
    """Steps come as they are recorded, a half line waits, and a run that goes back repeats none."""
    run = make_run(tmp_path / "cohort" / "native-s42", "native")
    steps, lines = list(read_records(run / STEPS, StepRecord)), (run / STEPS).read_bytes().splitlines(True)
    notes: dict[str, Notes] = {}
    followed = Scalars(tmp_path, lambda name: notes.setdefault(name, Notes()))
    for data in (lines[0] + lines[1][:9], b"".join(lines[:3]), lines[0], b"".join(lines), b"".join(lines)):
        (run / STEPS).write_bytes(data)
        followed.write_new()
    due = [(tag, of(s), s.step) for s in steps for tag, of in SCALARS.items() if of(s) is not None]
    assert notes["cohort/native-s42"].written == due


def test_what_is_missing_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, and for a directory that would be sealed."""
    with pytest.raises(ConfigError):
        require_tensorboard(tmp_path, tmp_path / "scalars")
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(ConfigError):
        require_tensorboard(tmp_path / "results", tmp_path / "scalars")


def test_tensorboard_reads_what_is_written(make_run: Callable[..., Path], tmp_path: Path) -> None:
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = make_run(tmp_path / "results" / "native-s42", "native")
    with running.written_while_running(tmp_path / "results", tmp_path / "scalars"):
        pass
    found = loading.EventAccumulator(str(tmp_path / "scalars" / "native-s42")).Reload()
    recorded = [step.frontier_after for step in read_records(run / STEPS, StepRecord)]
    assert [one.value for one in found.Scalars("search/best_score")] == pytest.approx(recorded)
