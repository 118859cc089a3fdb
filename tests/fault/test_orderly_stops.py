"""A run that is asked to stop ends the group that it is in, and goes on behind it: no group is made twice."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cohorts import Told
from tests.fault.stand_ins import assembled, configuration, records_of

from search_to_signal.base import processes
from search_to_signal.base.processes import StopRequest
from search_to_signal.records.manifest import read_manifest
from search_to_signal.run import loop as run_module
from search_to_signal.run.config import RunConfig
from search_to_signal.run.directory import newest_checkpoint
from search_to_signal.run.loop import Parts, run

GROUPS, SELDOM = 6, 100


class Lines(Told):
    """Keeps what a run reports, in order."""

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        self.lines.append(f"{done}/{total} {note}")


class Asked:
    """Passes a part of a run on, and sends ``signals`` in its ``number``-th call of a method."""

    def __init__(self, part: Any, method: str, stop: StopRequest, number: int, signals: int = 1) -> None:
        self.part, self.method, self.stop, self.number, self.signals = part, method, stop, number, signals
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.part, name)
        return self.counted(found) if name == self.method else found

    def counted(self, found: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            self.calls += 1
            for _ in range(self.signals if self.calls == self.number else 0):
                self.stop(signal.SIGTERM, None)
            return found(*given)

        return call


def go(
    config: RunConfig, directory: Path, part: str = "", method: str = "", number: int = 0, signals: int = 1
) -> tuple[int, list[str]]:
    """Run, or go on, with a stop in a call; returns how many groups were sampled, and what was reported."""
    stop, lines = StopRequest(), Lines()
    sampled: list[Asked] = []

    @contextmanager
    def with_stop(given: RunConfig) -> Iterator[Parts]:
        with assembled(given) as parts:
            sampled.append(Asked(parts.generator, "generate", stop, 0))
            parts = parts._replace(generator=sampled[0])  # type: ignore[arg-type]
            if part:
                parts = parts._replace(**{part: Asked(getattr(parts, part), method, stop, number, signals)})
            yield parts

    try:
        run(config, directory, lines, resume=True, checkpoint_every=SELDOM, assemble=with_stop, stop=stop)
    except KeyboardInterrupt as ended:
        lines.lines.append(" ".join(["ended", *ended.args]))
    return sampled[0].calls, lines.lines


@pytest.fixture(autouse=True)
def _each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_TOGETHER_S", 0.0)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("condition", ["native", "frozen"])
def test_a_run_that_was_stopped_in_order_repeats_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, behind: bool
) -> None:
    """Asked in any group, it goes on with the next one, seldom as its checkpoints are, to equal bytes."""
    monkeypatch.setattr(run_module, "can_replay_behind", lambda config: behind)
    config = configuration(tmp_path / "model", condition, groups=GROUPS)
    go(config, tmp_path / "whole")
    expected = records_of(tmp_path / "whole")
    for done in range(1, GROUPS):
        directory = tmp_path / f"{done}"
        sampled, lines = go(config, directory, "generator", "generate", done)
        assert sampled == done
        assert f"{done - 1}/{GROUPS} stopping after this group" in lines
        assert lines[-2:] == [f"stopped after {done} of {GROUPS} groups", f"ended after {done} of 6 groups"]
        assert go(config, directory)[0] == GROUPS - done
        assert records_of(directory) == expected
        assert read_manifest(directory).interruptions == 1


def test_a_stop_in_the_last_group_is_the_end(tmp_path: Path) -> None:
    """There is nothing to go on with: the run is completed."""
    config = configuration(tmp_path / "model", groups=GROUPS)
    sampled, lines = go(config, tmp_path / "run", "generator", "generate", GROUPS)
    assert sampled == GROUPS
    assert not any(line.startswith("ended") for line in lines)
    assert read_manifest(tmp_path / "run").status == "complete"


def test_a_second_signal_ends_the_run_in_its_group(tmp_path: Path) -> None:
    """At once: the group is lost with those since the last checkpoint, and the bytes are the same again."""
    config = configuration(tmp_path / "model", groups=GROUPS)
    go(config, tmp_path / "whole")
    _, lines = go(config, tmp_path / "run", "generator", "generate", 3, signals=2)
    assert lines[-1] == "ended"
    newest = newest_checkpoint(tmp_path / "run")
    assert newest is not None
    assert newest[0].done == 0
    assert go(config, tmp_path / "run")[0] == GROUPS
    assert records_of(tmp_path / "run") == records_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("part", "method"), [("pool", "evaluate"), ("pool", "remember"), ("training", "restore")]
)
def test_a_stop_outside_a_group_ends_at_once(tmp_path: Path, part: str, method: str) -> None:
    """Before the first group, where the seed is evaluated, and while a stopped run is taken up again."""
    config, directory = configuration(tmp_path / "model", groups=GROUPS), tmp_path / "run"
    go(config, tmp_path / "whole")
    if method != "evaluate":
        go(config, directory, "generator", "generate", 2)
    sampled, lines = go(config, directory, part, method, 1)
    assert (sampled, lines) == (0, ["ended"])
    assert go(config, directory)[0] == (GROUPS if method == "evaluate" else GROUPS - 2)
    assert records_of(directory) == records_of(tmp_path / "whole")
