"""The plan's studies are recorded in order, and recording stops when it is told to."""

import errno
import signal
import time
from pathlib import Path

import pytest
from tests.command import Patch

from search_to_signal.base import processes
from search_to_signal.base.errors import ConfigError, RunDirectoryError, RunFailedError, StoppedError
from search_to_signal.cli import main
from search_to_signal.records.layers import Layer
from search_to_signal.records.plan import read_plan
from search_to_signal.run.execution import Failures, stoppable
from search_to_signal.run.planned_runs import Reproduction
from search_to_signal.study import recording
from search_to_signal.study.recording import Stop, record

PLAN = read_plan()
SHA256 = "a" * 64


@pytest.fixture
def recorded(monkeypatch: Patch) -> list[tuple[str, str]]:
    """What would run: the directory and the layer, in order."""
    found: list[tuple[str, str]] = []

    def run_layer(layer: Layer, reproduction: Reproduction) -> None:
        assert reproduction.execution.plan == SHA256
        assert reproduction.execution.resume
        found.append((reproduction.results.name, layer.key))

    monkeypatch.setattr(recording, "run_layer", run_layer)
    monkeypatch.setattr(recording, "seal", lambda results, title: found.append((results.name, "sealed")))
    return found


def test_every_study_in_the_order_of_the_plan(recorded: list[tuple[str, str]], tmp_path: Path) -> None:
    """Each profile has a results directory of its own; one study can be asked for alone."""
    assert record(PLAN, SHA256, tmp_path, Stop())
    assert recorded == [
        (name, done) for s in PLAN.studies for name in s.profiles for done in (*s.layers, "sealed")
    ]
    recorded.clear()
    last = PLAN.studies[-1]
    assert record(PLAN, SHA256, tmp_path, Stop(), [last.key])
    assert recorded == [(name, done) for name in last.profiles for done in (*last.layers, "sealed")]
    with pytest.raises(ConfigError, match=r"nothing.*main"):
        record(PLAN, SHA256, tmp_path, Stop(), ["nothing"])


@pytest.mark.parametrize("stop", ["minutes", "file"])
def test_it_stops_when_told(stop: str, monkeypatch: Patch, tmp_path: Path) -> None:
    """After the minutes, or once the file exists, what runs is interrupted; it is no error."""
    monkeypatch.setattr(recording, "_POLL_S", 0.01)
    file = tmp_path / "stop"

    def run_layer(layer: Layer, reproduction: Reproduction) -> None:
        file.touch()
        wait_for_signal()

    monkeypatch.setattr(recording, "run_layer", run_layer)
    told = Stop(minutes=0.001) if stop == "minutes" else Stop(file=file)
    assert not record(PLAN, SHA256, tmp_path / "out", told)


def test_a_stop_that_is_due_begins_nothing(
    recorded: list[tuple[str, str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A file of an earlier stop is named, with what to do: it is a planned stop, and no run is begun."""
    file = tmp_path / "stop"
    file.touch()
    command = ["record", "--out", str(tmp_path / "out"), "--stop-file", str(file)]
    assert main(command) == 0
    assert f"stopped as asked; the file {file} asks for it: remove it, then" in capsys.readouterr().out
    assert (recorded, [path.name for path in tmp_path.iterdir()]) == ([], ["stop"])
    assert not record(PLAN, SHA256, tmp_path / "out", Stop(minutes=0.0))
    assert recorded == []


@pytest.mark.parametrize("minutes", ["nan", "-1", "inf"])
def test_minutes_that_are_no_time_are_refused(
    recorded: list[tuple[str, str]], capsys: pytest.CaptureFixture[str], tmp_path: Path, minutes: str
) -> None:
    """One would never stop, the other stop before it begins and say that the same command goes on."""
    assert main(["record", "--out", str(tmp_path / "out"), "--minutes", minutes]) == 2
    assert f"--minutes {minutes}: give a number from 0 to 1000000.0" in capsys.readouterr().err
    assert recorded == []


def test_a_planned_stop_does_not_hide_a_failure(monkeypatch: Patch, tmp_path: Path) -> None:
    """A run that failed before it was time to stop is an error still."""
    monkeypatch.setattr(recording, "_POLL_S", 0.01)
    file = tmp_path / "stop"

    def run_layer(layer: Layer, reproduction: Reproduction) -> None:
        with Failures(reproduction.execution, reproduction.progress) as failures, stoppable(True):
            failures.add(RunFailedError("run native-s1 ended with exit code 7"), others=True)
            file.touch()
            wait_for_signal()

    monkeypatch.setattr(recording, "run_layer", run_layer)
    with pytest.raises(RunFailedError, match="native-s1"):
        record(PLAN, SHA256, tmp_path / "out", Stop(file=file))


def test_ctrl_c_is_no_planned_stop(monkeypatch: Patch, tmp_path: Path) -> None:
    def run_layer(layer: Layer, reproduction: Reproduction) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recording, "run_layer", run_layer)
    with pytest.raises(StoppedError):
        record(PLAN, SHA256, tmp_path, Stop())


def test_a_planned_stop_does_not_break_off_another(monkeypatch: Patch, tmp_path: Path) -> None:
    """What is due while runs end their groups after Ctrl-C is no second signal."""
    monkeypatch.setattr(recording, "_POLL_S", 0.01)
    monkeypatch.setattr(processes, "_TOGETHER_S", 0.0)
    file = tmp_path / "stop"

    def run_layer(layer: Layer, reproduction: Reproduction) -> None:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        file.touch()
        time.sleep(0.2)  # runs end their groups
        raise KeyboardInterrupt

    monkeypatch.setattr(recording, "run_layer", run_layer)
    with pytest.raises(StoppedError):
        record(PLAN, SHA256, tmp_path / "out", Stop(file=file))


def test_the_advice_on_a_full_disk_fits_the_command(monkeypatch: Patch, tmp_path: Path) -> None:
    """Recording has no option for going on: it always does."""

    def run_layer(layer: Layer, reproduction: Reproduction) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recording, "run_layer", run_layer)
    with pytest.raises(RunDirectoryError, match="make room, then give the same command again$"):
        record(PLAN, SHA256, tmp_path, Stop())


def wait_for_signal() -> None:
    """Wait for a signal, but not for ever."""
    time.sleep(60)
    raise AssertionError("nothing interrupted the study")


def test_jobs_of_this_machine_replace_those_of_the_profile(monkeypatch: Patch, tmp_path: Path) -> None:
    """The profile says what is usual; a machine with more cards takes more runs, and none is refused."""
    seen: list[int] = []
    monkeypatch.setattr(recording, "seal", lambda results, title: None)
    monkeypatch.setattr(
        recording, "run_layer", lambda layer, reproduction: seen.append(reproduction.execution.jobs)
    )
    first = PLAN.studies[0].key
    assert record(PLAN, SHA256, tmp_path, Stop(), [first], jobs=37)
    assert set(seen) == {37}
    with pytest.raises(ConfigError, match="at least 1"):
        record(PLAN, SHA256, tmp_path, Stop(), [first], jobs=0)
