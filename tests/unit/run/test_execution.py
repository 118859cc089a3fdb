"""A bounded pool of processes: a failure starts no more, a signal ends all, and nothing is left running."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.cohorts import Told, nine_groups

from search_to_signal.base.errors import RunFailedError, StoppedError
from search_to_signal.run import execution
from search_to_signal.run.execution import Execution, PlannedRun
from search_to_signal.run.planned_runs import run_missing

pytestmark = pytest.mark.slow

# Stands for `python -m search_to_signal.cli run-one`: does what the name of its condition says.
STUB = """#!{python} -S
import json, os, sys, time
config = json.load(sys.stdin)
folder = os.path.dirname(sys.argv[sys.argv.index("--out") + 1])
with open(os.path.join(folder, config["condition"] + "-begins"), "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, os.path.join(folder, config["condition"]))  # whoever sees it can read it
with open(os.path.join(folder, "cards"), "a") as file:
    file.write(os.environ.get("CUDA_VISIBLE_DEVICES", "none") + "\\n")
print("progress 1 9 begun", flush=True)
if config["condition"] == "sleeps":
    time.sleep(120)
if config["condition"] == "outlasts":
    while not os.path.exists(os.path.join(folder, "failed")):
        time.sleep(0.01)
    time.sleep(0.5)
    open(os.path.join(folder, "whole"), "w").close()
if config["condition"].startswith("orderly"):
    import signal
    def end(*_):
        open(os.path.join(folder, config["condition"] + ".asked"), "w").close()
        while sum(name.endswith(".asked") for name in os.listdir(folder)) < 2:
            time.sleep(0.01)
        open(os.path.join(folder, config["condition"] + ".ended"), "w").close()
        sys.exit(130)
    signal.signal(signal.SIGTERM, end)
    open(os.path.join(folder, config["condition"] + ".ready"), "w").close()
    time.sleep(120)
if config["condition"].startswith("patient"):
    import signal
    def end(*_):
        if os.path.exists(os.path.join(folder, "asked")):
            open(os.path.join(folder, "at-once"), "w").close()
            sys.exit(130)
        open(os.path.join(folder, "asked"), "w").close()
    signal.signal(signal.SIGTERM, end)
    open(os.path.join(folder, "ready"), "w").close()
    until = time.monotonic() + 20
    while not os.path.exists(os.path.join(folder, "group")) and time.monotonic() < until:
        time.sleep(0.01)
    open(os.path.join(folder, "in-order"), "w").close()
    sys.exit(130 if config["condition"] == "patient" else 9)
if config["condition"].startswith("breaks"):
    sys.exit(8)
if config["condition"] == "fails":
    while not os.path.exists(os.path.join(folder, "outlasts")):
        time.sleep(0.01)
    open(os.path.join(folder, "failed"), "w").close()
    print("error: broken beyond repair", flush=True)
    sys.exit(7)
"""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[PlannedRun]]:
    """Places for runs that are stubs; of equal length unless ``groups`` says otherwise."""
    stub = tmp_path / "python"
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stub))
    plain = nine_groups()

    def planned(*conditions: str, **groups: int) -> list[PlannedRun]:
        configs = [
            msgspec.structs.replace(plain, condition=condition, groups=groups.get(condition, 9))
            for condition in conditions
        ]
        return [PlannedRun(config, tmp_path / "out" / config.name, done=False) for config in configs]

    return planned


def gone(pid: int) -> bool:
    """Whether no such process runs: one that ended stays as a zombie where process 1 waits for none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_after_a_failure_running_runs_go_on_and_none_starts(
    make: Callable[..., list[PlannedRun]], tmp_path: Path
) -> None:
    """The failure is said at once, with the run's name, exit code and what it said, and is the error."""
    lines = Told()
    failed = r"run cohort/fails-s1 ended with exit code 7 \(error: broken beyond"
    with pytest.raises(RunFailedError, match=failed):
        run_missing(make("outlasts", "fails", "waits", "later"), Execution(jobs=2), lines)
    assert (tmp_path / "out" / "whole").exists()
    assert not (tmp_path / "out" / "waits").exists()
    assert not (tmp_path / "out" / "later").exists()
    assert not (tmp_path / "out" / "later-s1.log").exists()
    (said,) = [line for line in lines.lines if "fails-s1" in line]
    assert re.match(failed, said)
    assert said.endswith("no new run starts")


def test_a_plan_goes_on_after_a_failure(make: Callable[..., list[PlannedRun]], tmp_path: Path) -> None:
    """One of hundreds of runs that fails costs the others nothing, and is the error at the end."""
    with pytest.raises(RunFailedError, match="fails-s1"):
        run_missing(make("outlasts", "fails", "waits", "later"), Execution(jobs=2, plan="a" * 64), Told())
    assert (tmp_path / "out" / "whole").exists()
    assert (tmp_path / "out" / "waits").exists()
    assert (tmp_path / "out" / "later").exists()


def test_every_failure_of_a_plan_is_said(make: Callable[..., list[PlannedRun]]) -> None:
    """The first at once, though no other runs beside it; the last too, which is not the error at the end."""
    lines = Told()
    with pytest.raises(RunFailedError, match="breaks-s1"):
        run_missing(make("breaks", "waits", "breaks-too"), Execution(jobs=1, plan="a" * 64), lines)
    first, last = [line for line in lines.lines if "ended with exit code 8" in line]
    assert "breaks-s1" in first
    assert first.endswith("the others go on")
    assert "breaks-too-s1" in last


@pytest.fixture
def _at_a_terminal() -> Iterator[None]:
    # A shell's background job starts with SIGINT ignored, and the tests may be one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_at_a_terminal")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_children(
    make: Callable[..., list[PlannedRun]], tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C or SIGTERM is one line that says how to go on, and leaves no process and no handler behind."""
    before = signal.getsignal(signal.SIGTERM)

    def interrupt() -> None:
        while not (tmp_path / "out" / "sleeps").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(StoppedError, match="--resume"):
        run_missing(make("sleeps", "waits"), Execution(jobs=1), Told())
    thread.join()
    assert gone(int((tmp_path / "out" / "sleeps").read_text()))
    assert not (tmp_path / "out" / "waits").exists()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_stop_does_not_hide_a_failure(make: Callable[..., list[PlannedRun]], tmp_path: Path) -> None:
    """The failure stays the error, and the rest is said to have stopped; nothing is left running."""

    def interrupt() -> None:
        while not (tmp_path / "out" / "sleeps").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread, lines = threading.Thread(target=interrupt), Told()
    thread.start()
    with pytest.raises(RunFailedError, match="breaks-s1 ended with exit code 8"):
        run_missing(make("breaks", "sleeps", "waits"), Execution(jobs=1, plan="a" * 64), lines)
    thread.join()
    assert lines.lines[-1] == "the other runs were stopped"
    assert gone(int((tmp_path / "out" / "sleeps").read_text()))
    assert not (tmp_path / "out" / "waits").exists()


def appears(path: Path) -> None:
    """Wait for a file, but not for ever."""
    deadline = time.monotonic() + 20.0
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert path.exists()


@contextmanager
def signalled(out: Path, then: Callable[[], None]) -> Iterator[None]:
    """Within it this process gets SIGTERM once the stub is ready; ``then`` is called once that is asked."""

    def interrupt() -> None:
        appears(out / "ready")
        os.kill(os.getpid(), signal.SIGTERM)
        appears(out / "asked")
        then()

    thread = threading.Thread(target=interrupt)
    thread.start()
    yield
    thread.join()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "_AGAIN_S", 0.05)
    monkeypatch.setattr(execution, "_ENDING_S", 0.05)


@pytest.mark.usefixtures("_impatient")
def test_a_run_that_is_asked_to_stop_has_the_time_that_its_group_takes(
    make: Callable[..., list[PlannedRun]], tmp_path: Path
) -> None:
    """However long that is, one signal ends nothing at once; what it waits for is said, and no run starts."""
    out, lines = tmp_path / "out", Told()

    def finish() -> None:
        time.sleep(0.5)
        (out / "group").touch()

    with signalled(out, finish), pytest.raises(StoppedError, match="--resume"):
        run_missing(make("patient", "waits"), Execution(jobs=1), lines)
    assert (out / "in-order").exists()
    assert not (out / "waits").exists()
    assert any("stopping: " in line for line in lines.lines)


def test_a_second_signal_ends_the_runs_at_once(make: Callable[..., list[PlannedRun]], tmp_path: Path) -> None:
    """Whoever cannot wait for a group asks again; the run ends by that, and is not killed."""
    out = tmp_path / "out"

    def again() -> None:
        time.sleep(0.7)  # signals that come together are one
        os.kill(os.getpid(), signal.SIGTERM)

    with signalled(out, again), pytest.raises(StoppedError, match="--resume"):
        run_missing(make("patient"), Execution(jobs=1), Told())
    assert (out / "at-once").exists()
    assert not (out / "in-order").exists()
    assert gone(int((out / "patient").read_text()))


def test_a_run_that_fails_in_its_last_group_is_told(
    make: Callable[..., list[PlannedRun]], tmp_path: Path
) -> None:
    """It was asked to stop and ended otherwise: the failure is the error, the rest stopped."""
    out, lines = tmp_path / "out", Told()
    with (
        signalled(out, (out / "group").touch),
        pytest.raises(RunFailedError, match="patient-fails-s1 ended with exit code 9"),
    ):
        run_missing(make("patient-fails"), Execution(jobs=1), lines)
    assert lines.lines[-1] == "the other runs were stopped"


def test_all_runs_are_asked_to_end_before_one_is_waited_for(
    make: Callable[..., list[PlannedRun]], tmp_path: Path
) -> None:
    """A stop takes as long as the run that takes longest to end in order, not as long as all of them."""
    out = tmp_path / "out"

    def interrupt() -> None:
        while len(list(out.glob("*.ready"))) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(StoppedError):
        run_missing(make("orderly", "orderly2"), Execution(jobs=2), Told())
    thread.join()
    assert len(list(out.glob("*.ended"))) == 2


def test_the_longest_run_starts_first(make: Callable[..., list[PlannedRun]], tmp_path: Path) -> None:
    """A trained run is longer than a frozen one, and more groups are longer than fewer."""
    run_missing(make("frozen", "native", "short", native=9, short=4), Execution(jobs=1), Told())
    times = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in ("frozen", "native", "short")}
    assert sorted(times, key=lambda name: times[name]) == ["native", "frozen", "short"]


PARENT = """
import subprocess, sys, time
child = "import os, sys; from search_to_signal.base.processes import end_with_parent; "
child += "end_with_parent(int(sys.argv[1])); print(os.getpid(), flush=True); import time; time.sleep(60)"
import os
parent = os.getpid() + int(sys.argv[1])
sys.exit(subprocess.run([sys.executable, "-c", child, str(parent)]).returncode)
"""


def test_a_run_ends_with_whoever_started_it() -> None:
    """When its parent is killed, or was gone already, a run does not stay behind."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, "0"], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout as output:
        child = int(output.readline())
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 60.0
        while not gone(child) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert gone(child)
    assert subprocess.run([sys.executable, "-c", PARENT, "1"], check=False).returncode == 1


def test_ray_stays_unloaded() -> None:
    code = "import sys, search_to_signal.cli, search_to_signal.run.planned_runs; print('ray' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_runs_share_the_cards_evenly(make: Callable[..., list[PlannedRun]], tmp_path: Path) -> None:
    """Each of several cards has as many runs; a single card is left to the process."""
    run_missing(make("a", "b", "c", "d", "e", "f"), Execution(jobs=2, cards=("GPU-x", "GPU-y")), Told())
    used = (tmp_path / "out" / "cards").read_text().split()
    assert len(used) == 6
    assert set(used) == {"GPU-x", "GPU-y"}
    (tmp_path / "out" / "cards").unlink()
    run_missing(make("g"), Execution(jobs=2, cards=("GPU-x",)), Told())
    assert (tmp_path / "out" / "cards").read_text().split() == ["none"]
