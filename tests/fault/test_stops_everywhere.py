"""A run is stopped between any two file operations, in every way, and goes on to the same bytes."""

import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cohorts import Told
from tests.fault.stand_ins import assembled, configuration, records_of

from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.provenance import environment, source
from search_to_signal.records.reader import read_records
from search_to_signal.records.schema import StepTiming
from search_to_signal.run import resuming
from search_to_signal.run.clock import tree_seconds
from search_to_signal.run.config import RunConfig
from search_to_signal.run.loop import run
from search_to_signal.verify.directory import verify

OPERATIONS = ("write", "fsync", "ftruncate", "replace", "unlink", "rmdir")
# How a run ends: between two operations, in the middle of one, or with everything unsynced lost.
ENDINGS = ("between", "within", "power")


class Stopped(BaseException):
    """The process is gone."""


class Faults:
    """Counts the file operations of a run and ends it before one of them; -1 never does."""

    def __init__(self, last: int, ending: str, synced: dict[str, int]) -> None:
        self.count = 0
        self._last = last
        self._ending = ending
        self._synced = synced

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **named: Any) -> Any:
            if self.count == self._last:
                if self._ending == "within" and name == "write":
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise Stopped
            self.count += 1
            result = real(*arguments, **named)
            self._note(name, arguments)
            return result

        return operation

    def _note(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "fsync":
            self._synced[os.readlink(f"/proc/self/fd/{arguments[0]}")] = os.fstat(arguments[0]).st_size
        if name == "replace":
            self._synced[str(arguments[1])] = self._synced.pop(str(arguments[0]), 0)

    def lose(self, directory: Path) -> None:
        """Whatever was not on disk is not there after a power failure."""
        for path in directory.rglob("*") if self._ending == "power" else ():
            if path.is_file() and path.stat().st_size > (size := self._synced.get(str(path), 0)):
                os.truncate(path, size)


@contextmanager
def faults(last: int, ending: str, directory: Path, synced: dict[str, int] | None = None) -> Iterator[Faults]:
    """Within it a run ends before its ``last`` file operation; ``synced`` bytes of a file are on disk."""
    injected = Faults(last, ending, {} if synced is None else synced)
    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, injected.wrap(name, getattr(os, name)))
        with suppress(Stopped):
            yield injected
    injected.lose(directory)


@pytest.fixture(autouse=True)
def _facts(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, tree = environment(), source()
    monkeypatch.setattr(resuming, "environment", lambda card=False: facts)
    monkeypatch.setattr(resuming, "source", lambda: tree)
    # What was synced is remembered below; the real disk has no part in this.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def go(config: RunConfig, directory: Path, every: int = 1) -> None:
    """Run, or go on."""
    run(config, directory, Told(), resume=True, checkpoint_every=every, assemble=assembled)


def test_a_resumed_run_times_every_step_once(tmp_path: Path) -> None:
    """Each step as it was last done: neither what came before it in its process, nor what was lost."""
    config, directory = configuration(tmp_path / "model"), tmp_path / "run"
    with faults(-1, "between", tmp_path / "whole") as counted:
        go(config, tmp_path / "whole")
    before = tree_seconds()
    with faults(counted.count // 2, "between", directory):
        go(config, directory)
    go(config, directory)
    after = tree_seconds()
    steps = list(read_records(directory / "timings.jsonl", StepTiming))
    spent = [step.processor_seconds for step in steps if step.processor_seconds is not None]
    assert [step.step for step in steps] == [0, 1, 2]
    assert len(spent) == 3
    assert before is not None
    assert after is not None
    assert 0 < sum(spent) <= after - before


@pytest.mark.parametrize(("condition", "every"), [("native", 1), ("native", 2), ("frozen", 1)])
def test_a_run_stopped_at_any_operation_ends_the_same(tmp_path: Path, condition: str, every: int) -> None:
    """Killed before, within or by a power failure at each file operation, it goes on to equal records."""
    config = configuration(tmp_path / "model", condition)
    with faults(-1, "between", tmp_path / "whole") as counted:
        go(config, tmp_path / "whole", every)
    expected = records_of(tmp_path / "whole")
    assert counted.count > 60
    assert read_manifest(tmp_path / "whole").interruptions == 0
    for last, ending in zip(range(counted.count), itertools.cycle(ENDINGS), strict=False):
        directory = tmp_path / f"{last}"
        with faults(last, ending, directory) as injected:
            go(config, directory, every)
        assert injected.count == last
        go(config, directory, every)
        assert records_of(directory) == expected, (last, ending)
        assert verify(directory).problems == ()
        assert read_manifest(directory).interruptions in (0, 1)


def test_a_run_stopped_again_and_again_ends_the_same(tmp_path: Path) -> None:
    """Stopped a dozen times at random, also while it goes on from a stop, it ends with equal records."""
    config, chance = configuration(tmp_path / "model", groups=6), random.Random(1)
    go(config, tmp_path / "whole", 2)
    expected = records_of(tmp_path / "whole")
    for number in range(6):
        directory = tmp_path / f"{number}"
        synced: dict[str, int] = {}
        for _ in range(12):
            with faults(chance.randrange(40), chance.choice(ENDINGS), directory, synced):
                go(config, directory, 2)
        go(config, directory, 2)
        assert records_of(directory) == expected, number
        assert verify(directory).problems == ()
