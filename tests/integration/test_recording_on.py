"""Recording goes on from runs that were shipped without their final adapters."""

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.progress import PlainProgress
from search_to_signal.layers.restart import layer as restart
from search_to_signal.layers.settings import RestartSettings
from search_to_signal.records.checksums import sum_problems
from search_to_signal.records.layers import COHORT, RESTART
from search_to_signal.run.execution import Execution
from search_to_signal.run.planned_runs import Reproduction, make_adapters
from search_to_signal.run.profile import Profile

HOW = Execution(resume=True, plan="a" * 64)


class Executed:
    """Remembers which runs made steps, in their order."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        if note and task not in self.runs:
            self.runs.append(task)

    def say(self, line: str) -> None: ...


@pytest.fixture(scope="module")
def profile(profile: Profile) -> Profile:
    """The tiny profile's trained run, of two seeds and one group."""
    return msgspec.structs.replace(
        profile, conditions=("native",), seeds=(42, 7), groups=1, restart=RestartSettings()
    )


@pytest.fixture(scope="module")
def recorded(profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results directory whose cohort belongs to a plan."""
    results = tmp_path_factory.mktemp("recorded") / "tiny"
    reproduction = Reproduction(profile, results, HOW, PlainProgress())
    reproduction.run_all({results / COHORT: profile.runs()})
    return results


@pytest.fixture
def shipped(recorded: Path, profile: Profile, tmp_path: Path) -> Reproduction:
    """A copy of it that lacks the adapter of its trained run."""
    results = Path(shutil.copytree(recorded, tmp_path / "tiny"))
    shutil.rmtree(results / COHORT / "native-s42" / "adapter")
    return Reproduction(profile, results, HOW, PlainProgress())


def contents(directory: Path) -> dict[str, bytes]:
    """Files by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_run_s_adapter_is_made_again_from_its_records(recorded: Path, shipped: Reproduction) -> None:
    """Right before its restart, seed by seed, and not where the restart is recorded."""
    run, told = shipped.results / COHORT / "native-s42", Executed()
    before = (run / "manifest.json").stat().st_mtime_ns
    reproduction = replace(shipped, progress=told)
    reproduction.run_all({run.parent: reproduction.profile.runs()})
    assert told.runs == []
    assert not (run / "adapter").exists()
    restart.run(reproduction)
    assert told.runs == ["cohort/native-s42", "restart/native-s42", "restart/native-s7"]
    assert contents(run / "adapter") == contents(recorded / COHORT / "native-s42" / "adapter")
    assert (run / "manifest.json").stat().st_mtime_ns == before
    assert list(shipped.results.parent.iterdir()) == [shipped.results]
    assert not sum_problems(shipped.results / RESTART)
    shutil.rmtree(run / "adapter")
    told.runs.clear()
    restart.run(reproduction)
    assert told.runs == []


def test_another_adapter_is_not_put_into_place(shipped: Reproduction) -> None:
    """Where the run's list has another, the run is named and stays as it was."""
    run = shipped.results / COHORT / "native-s42"
    sums = run / "SHA256SUMS"
    lines = sums.read_text().splitlines()
    other = [f"{'0' * 64}{line[64:]}" if "safetensors" in line else line for line in lines]
    sums.write_text("\n".join(other) + "\n")
    with pytest.raises(RunDirectoryError, match=r"native-s42 records another adapter .*--adapters"):
        make_adapters(shipped, run.parent, {"native-s42"})
    assert not (run / "adapter").exists()


def test_other_damage_is_still_named(shipped: Reproduction) -> None:
    """A run that lacks its adapter is otherwise whole, or refused."""
    run = shipped.results / COHORT / "native-s42"
    (run / "steps.jsonl").unlink()
    with pytest.raises(RunDirectoryError, match=r"complete but damaged \(steps"):
        shipped.run_all({run.parent: shipped.profile.runs()})
