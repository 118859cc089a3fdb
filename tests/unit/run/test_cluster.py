"""The way to Ray and back, with a Ray made by hand; the real one is in tests/proofs/ray_cluster.py."""

import pickle
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.cohorts import nine_groups
from tests.command import Patch

from search_to_signal.base.errors import ConfigError, RunFailedError, StoppedError
from search_to_signal.run import planned_runs
from search_to_signal.run.config import RunConfig
from search_to_signal.run.execution import Execution, PlannedRun
from search_to_signal.run.planned_runs import node_resources, run_missing
from search_to_signal.sandbox.settings import EvaluationSettings


class Quiet:
    """Remembers what was said and reported."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        self.said.append((task, done, total))

    def say(self, line: str) -> None:
        self.said.append(line)


class Lost(Exception):
    """What Ray says of a node that died once too often, and the root of its other errors."""


class Task(Lost):
    """Ray's wrapper around what a task raised, which prints as a traceback of many lines."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"traceback\nof\n{cause}")
        self.cause = cause


class Cancelled(Lost):
    """What Ray says of a task that was cancelled before it ran, or ended by the interruption."""


class Ray:
    """Runs what it is given when it is asked for the result, and remembers how it was asked.

    Of what is cancelled only tasks named ``runs`` have begun: they are interrupted, as Ray does it.
    """

    exceptions = SimpleNamespace(RayTaskError=Task, RayError=Lost, TaskCancelledError=Cancelled)

    def __init__(self, resources: dict[str, float]) -> None:
        self.resources = resources
        self.options: list[dict[str, int]] = []
        self.cancelled: list[tuple[str, bool]] = []
        self.connected: str | None = None

    def init(self, address: str, log_to_driver: bool) -> None:
        if address == "nowhere":
            raise ConnectionError("no such host")
        self.connected = address

    def shutdown(self) -> None:
        self.connected = None

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def remote(self, **settings: int) -> Callable[..., Any]:
        assert settings["max_retries"] > 0

        def decorate(function: Callable[..., Any]) -> Any:
            def options(**given: int) -> Any:
                self.options.append(given)
                # What goes to another machine has to survive the way there.
                return SimpleNamespace(remote=lambda *a: (function, pickle.dumps(a)))

            return SimpleNamespace(options=options)

        return decorate

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return references[:1], references[1:]

    def get(self, reference: Any) -> Any:
        function, arguments = reference
        run, execution = pickle.loads(arguments)
        if (run.config.condition, False) in self.cancelled and run.config.condition != "runs":
            raise Cancelled
        try:
            return function(run, execution)
        except (RunFailedError, FileExistsError) as error:
            raise Task(error) from error
        except KeyboardInterrupt:
            raise Cancelled from None

    def cancel(self, reference: Any, force: bool = False) -> None:
        self.cancelled.append((pickle.loads(reference[1])[0].config.condition, force))


@pytest.fixture
def ray(monkeypatch: Patch) -> Iterator[Ray]:
    """A Ray without GPUs, on which runs are played by hand."""
    made = Ray({"CPU": 4.0})
    before = signal.getsignal(signal.SIGINT)

    def execute_run(
        run: PlannedRun, execution: Execution, progress: Any, children: Any, wait_s: float
    ) -> None:
        assert (execution.resume, run.directory.is_absolute(), wait_s > 0) == (True, True, True)
        if run.config.condition == "fails":
            raise RunFailedError("run fails-s1 ended with exit code 7")
        if run.config.condition == "lost":
            raise Lost("node died")
        if run.config.condition == "runs" and made.cancelled:
            signal.raise_signal(signal.SIGINT)
        run.directory.mkdir(parents=True)
        (run.directory / "steps.jsonl").write_text("{}\n{}\n")
        progress.say(f"{run.config.name}: fast")

    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setattr(planned_runs, "execute_run", execute_run)
    yield made
    signal.signal(signal.SIGINT, before)


def configuration(condition: str, **changes: Any) -> RunConfig:
    """A run of nine groups."""
    plain = nine_groups()
    return msgspec.structs.replace(plain, condition=condition, **changes)


def planned(out: Path, *conditions: str) -> list[PlannedRun]:
    """A planned run per condition."""
    configs = [configuration(condition) for condition in conditions]
    return [PlannedRun(config, out / config.name, done=False) for config in configs]


def test_a_cohort_runs_on_ray(ray: Ray, tmp_path: Path) -> None:
    """Every run is played once, the longest first; what it says and how far it is comes back."""
    progress = Quiet()
    run_missing(planned(tmp_path, "frozen", "native"), Execution(ray="auto"), progress)
    assert progress.said == ["native-s1: fast", ("cohort/frozen-s1", 0, 9), "frozen-s1: fast"]
    assert (ray.options, ray.connected) == ([{"num_cpus": 1, "num_gpus": 0}] * 2, None)


@pytest.mark.parametrize("resume", [True, False])
def test_unfinished_runs_are_set_aside_before_they_are_sent(
    ray: Ray, make_run: Callable[..., Path], tmp_path: Path, resume: bool
) -> None:
    """Once sent a run always goes on with what it finds, so what may not be there is moved first."""
    (made,) = planned(tmp_path, "other")
    make_run(made.directory, status="running")
    (made.directory / "config.json").write_bytes(b"")
    if resume:
        with pytest.raises(Task, match="File exists"):  # what is no failure of a run comes back whole
            run_missing([made], Execution(ray="auto", resume=True), Quiet())
    else:
        run_missing([made], Execution(ray="auto"), Quiet())
    assert (tmp_path / "interrupted" / "other-s1-1").exists() is not resume


FAILURES = pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("fails", r"^run fails-s1 ended with exit code 7"),
        ("lost", r"^run cohort/lost-s1 was lost on the cluster \(Lost\)"),
    ],
)


@FAILURES
def test_after_a_failure_on_ray_running_runs_go_on_and_none_starts(
    ray: Ray, tmp_path: Path, condition: str, named: str
) -> None:
    """As on this machine: it is said at once, what waits is cancelled, and it is the error at the end."""
    progress = Quiet()
    with pytest.raises(RunFailedError, match=named):
        run_missing(planned(tmp_path, "first", condition, "runs", "waits"), Execution(ray="auto"), progress)
    assert (tmp_path / "runs-s1").exists()
    assert not (tmp_path / "waits-s1").exists()
    (said,) = [line for line in progress.said if isinstance(line, str) and re.match(named, line)]
    assert said.endswith("no new run starts")
    assert (ray.cancelled, ray.connected) == ([("runs", False), ("waits", False)], None)


@FAILURES
def test_a_plan_on_ray_goes_on_after_a_failure(ray: Ray, tmp_path: Path, condition: str, named: str) -> None:
    """As on this machine: all others come to their end, and the first failure is the error."""
    todo = planned(tmp_path, "first", condition, "runs", "fails", "waits")
    with pytest.raises(RunFailedError, match=named):
        run_missing(todo, Execution(ray="auto", plan="a" * 64), Quiet())
    assert {path.name for path in tmp_path.iterdir()} == {"first-s1", "runs-s1", "waits-s1"}
    assert (ray.cancelled, ray.connected) == ([], None)


def test_a_run_that_somebody_else_cancels_has_failed(ray: Ray, tmp_path: Path) -> None:
    """Only after a failure is a cancelled run one that was not to start."""
    ray.cancelled.append(("other", False))
    with pytest.raises(RunFailedError, match=r"other-s1 was lost on the cluster \(Cancelled"):
        run_missing(planned(tmp_path, "other"), Execution(ray="auto"), Quiet())


def test_a_stop_on_ray_ends_every_run(ray: Ray, tmp_path: Path, monkeypatch: Patch) -> None:
    """Ctrl-C ends what runs there, and the connection."""

    def wait(references: list[Any], timeout: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ray, "wait", wait)
    with pytest.raises(StoppedError, match="--resume"):
        run_missing(planned(tmp_path, "runs", "waits"), Execution(ray="auto"), Quiet())
    assert (ray.cancelled, ray.connected) == ([("runs", True), ("waits", True)], None)


def test_a_stop_on_ray_does_not_hide_a_failure(ray: Ray, tmp_path: Path, monkeypatch: Patch) -> None:
    """As on this machine: the failure stays the error, and the rest is said to have stopped."""
    plain = ray.wait

    def wait(references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        if len(references) == 1:
            raise KeyboardInterrupt
        return plain(references, timeout)

    monkeypatch.setattr(ray, "wait", wait)
    progress = Quiet()
    with pytest.raises(RunFailedError, match="fails-s1"):
        run_missing(planned(tmp_path, "fails", "runs"), Execution(ray="auto", plan="a" * 64), progress)
    assert progress.said[-1] == "the other runs were stopped"
    assert (ray.cancelled, ray.connected) == ([("runs", True)], None)


def test_no_cluster_is_explained(ray: Ray, tmp_path: Path, monkeypatch: Patch) -> None:
    todo = planned(tmp_path, "native")
    with pytest.raises(ConfigError, match="no Ray cluster at nowhere: no such host"):
        run_missing(todo, Execution(ray="nowhere"), Quiet())
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="extra 'cluster'"):
        run_missing(todo, Execution(ray="auto"), Quiet())
    assert list(tmp_path.iterdir()) == []


def test_a_run_asks_for_what_it_uses() -> None:
    """One GPU where there are some; as many processors as the model or the evaluations keep busy."""
    plain = configuration("native")
    assert node_resources(PlannedRun(plain, Path(), done=False), gpus=False) == {"num_cpus": 1, "num_gpus": 0}
    assert node_resources(PlannedRun(plain, Path(), done=False), gpus=True) == {"num_cpus": 1, "num_gpus": 1}
    wide = configuration("native", threads=2, evaluation=EvaluationSettings(slots=6))
    assert node_resources(PlannedRun(wide, Path(), done=False), gpus=False)["num_cpus"] == 6


def test_gpus_are_found(ray: Ray, tmp_path: Path) -> None:
    ray.resources["GPU"] = 2.0
    run_missing(planned(tmp_path, "native"), Execution(ray="auto"), Quiet())
    assert ray.options == [{"num_cpus": 1, "num_gpus": 1}]
