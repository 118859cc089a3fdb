"""A stopped run travels without its learner's weights: its records make the learner again, to the bit."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from search_to_signal.base.errors import NotFiniteError, RunDirectoryError
from search_to_signal.learner.base import StepResult, TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import read_records
from search_to_signal.records.schema import StepRecord
from search_to_signal.run.config import RunConfig
from search_to_signal.run.loop import run
from search_to_signal.run.profile import Profile
from search_to_signal.verify.records import record_problems


class Stopped(BaseException):
    """The process is gone."""


class StopsAt:
    """Stops a run when a group is done; ``None`` is never."""

    def __init__(self, group: int | None = None) -> None:
        self.group = group
        self.notes: list[str] = []
        self.lines: list[str] = []

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        self.notes.append(note)
        if done == self.group:
            raise Stopped

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def config(profile: Profile) -> RunConfig:
    """A trained run of the tiny profile, of pairs."""
    run = profile.run("native", 42)
    return msgspec.structs.replace(
        run, groups=3, generation=msgspec.structs.replace(run.generation, group_size=2)
    )


@pytest.fixture(scope="module")
def whole(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run."""
    place = tmp_path_factory.mktemp("whole") / "run"
    run(config, place, StopsAt())
    return place


@pytest.fixture(scope="module")
def halted(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, stopped behind its checkpoint, as it travels: without weights."""
    place = tmp_path_factory.mktemp("halted") / "run"
    with pytest.raises(Stopped):
        run(config, place, StopsAt(3), checkpoint_every=2)
    weights = list(place.rglob("*.safetensors"))
    assert weights
    for file in weights:
        file.unlink()
    return place


@pytest.fixture
def stopped(halted: Path, tmp_path: Path) -> Path:
    """A copy of it, to go on with."""
    return Path(shutil.copytree(halted, tmp_path / "run"))


def test_it_goes_on_as_if_nothing_had_been_left_out(config: RunConfig, whole: Path, stopped: Path) -> None:
    """Records and final adapter are those of the undisturbed run."""
    place, progress = stopped, StopsAt()
    run(config, place, progress, resume=True)
    assert "update" in progress.notes
    assert read_manifest(place).status == "complete"
    names = ["completions.jsonl", "steps.jsonl", "generations.jsonl", "heuristics.jsonl"]
    names += [path.relative_to(whole).as_posix() for path in (whole / "adapter").iterdir()]
    for name in names:
        assert (place / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_run_goes_on_in_the_middle_of_a_step(config: RunConfig, tmp_path: Path) -> None:
    """Groups of one have no advantage: every other one is dropped, and two of the rest are a step."""
    rule = {"prompts_per_step": 2, "redraws": 1}
    ones = msgspec.structs.replace(config.generation, group_size=1)
    config = msgspec.structs.replace(config, groups=5, generation=ones, rule_settings=rule)
    whole, halted = tmp_path / "whole", tmp_path / "halted"
    run(config, whole, StopsAt())
    with pytest.raises(Stopped):
        run(config, halted, StopsAt(3))
    for file in halted.rglob("*.safetensors"):
        file.unlink()
    run(config, halted, StopsAt(), resume=True)
    assert (halted / "steps.jsonl").read_bytes() == (whole / "steps.jsonl").read_bytes()
    steps = list(read_records(whole / "steps.jsonl", StepRecord))
    assert [step.dropped for step in steps] == ["no_advantage", msgspec.UNSET] * 2 + ["no_advantage"]
    assert [step.training_tokens > 0 for step in steps] == [False, False, False, True, False]
    assert record_problems(whole, read_manifest(whole)) == []


def test_another_learner_is_refused(config: RunConfig, stopped: Path) -> None:
    """Where the records make another one than the checkpoint names, the run is named and gets no group."""
    place = stopped
    for file in (place / "checkpoint").glob("*.json"):
        checkpoint = json.loads(file.read_text())
        file.write_text(json.dumps({**checkpoint, "learner": "0" * 64}))
    before = (place / "steps.jsonl").read_bytes()
    with pytest.raises(RunDirectoryError, match=r"another learner.*\.safetensors"):
        run(config, place, StopsAt(), resume=True)
    assert before.startswith((place / "steps.jsonl").read_bytes())


def test_the_first_update_that_comes_out_otherwise_is_named(
    config: RunConfig, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a machine computes other bits the run is refused at once, and gets no group."""
    step, taken = GrpoLearner.step, []

    def elsewhere(learner: GrpoLearner, group: TrainingGroup) -> StepResult:
        taken.append(group)
        return replace(step(learner, group), adapter_sha256="f" * 64)

    monkeypatch.setattr(GrpoLearner, "step", elsewhere)
    with pytest.raises(RunDirectoryError, match=r"update of step 0 .*\.safetensors"):
        run(config, stopped, StopsAt(), resume=True)
    assert len(taken) == 1


def test_an_update_that_is_not_finite_is_said(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on, and whoever watches it learns of every update that was lost."""
    update = GrpoLearner.update

    def broken(learner: GrpoLearner, *given: Any, **named: Any) -> StepResult:
        if not lost:
            lost.append(1)
            raise NotFiniteError("the gradient is not finite")
        return update(learner, *given, **named)

    lost: list[int] = []
    monkeypatch.setattr(GrpoLearner, "update", broken)
    progress = StopsAt()
    run(msgspec.structs.replace(config, groups=2), tmp_path / "run", progress)
    (line,) = progress.lines
    assert "not finite" in line
    steps = [json.loads(step) for step in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    (step,) = [step for step in steps if step.get("not_finite")]
    assert line.startswith(f"step {step['step']}:")
