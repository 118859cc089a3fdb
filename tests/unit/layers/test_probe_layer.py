"""The probe loses nothing: it goes on where it stopped, keeps what is whole and refuses what is foreign."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cohorts import Told
from tests.command import Patch
from tests.profiles import plain_profile

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.layers.probe import answers
from search_to_signal.layers.probe import layer as probe
from search_to_signal.layers.probe.answers import ProbeTask
from search_to_signal.layers.probe.layer import checkpoints
from search_to_signal.layers.settings import ProbeSettings
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.layers import COHORT, PROBE
from search_to_signal.records.probe import BankPrompt, Checkpoint, ProbedCheckpoint, read_probe
from search_to_signal.run import planned_runs
from search_to_signal.run.config import RunConfig
from search_to_signal.run.execution import Execution
from search_to_signal.run.planned_runs import Reproduction
from search_to_signal.run.profile import Profile
from search_to_signal.search.hosts.calm.prompts import REPLACEMENT

pytestmark = pytest.mark.slow

PROFILE = plain_profile(seeds=(42, 7), probe=ProbeSettings(prompts=2, completions=3))
NAMES = ["initial", "native-s42", "native-s7"]


def bank(runs: dict[Path, RunConfig], prompts: int) -> list[BankPrompt]:
    """Prompts out of the air."""
    return [
        BankPrompt(
            prompt=number,
            run=next(iter(runs)).name,
            step=number,
            operator=REPLACEMENT,
            system="s",
            user=f"u{number}",
            prompt_sha256="p",
            base_scores=(-5.0,),
            frontier=-5.0,
        )
        for number in range(prompts)
    ]


@pytest.fixture
def asked(monkeypatch: Patch) -> list[str]:
    """Instead of a model, a file per checkpoint; lists who was asked."""
    names: list[str] = []

    def answered(
        config: RunConfig, checkpoint: Checkpoint, cohort: Path, directory: Path, progress: Any
    ) -> tuple[dict[str, str | bool], ProbedCheckpoint]:
        names.append(checkpoint.name)
        file = directory / f"{checkpoint.name}.jsonl"
        file.write_text(f"{checkpoint.adapter_sha256} {config.generation.group_size}\n")
        digests = {"bank_sha256": sha256_file(directory / "bank.jsonl"), "records_sha256": sha256_file(file)}
        return {"seccomp": True}, ProbedCheckpoint(**msgspec.structs.asdict(checkpoint), **digests)

    monkeypatch.setattr(probe, "_probe_checkpoint", answered)
    monkeypatch.setattr(probe, "build_bank", bank)
    monkeypatch.setattr(planned_runs, "finished_cohort", lambda profile, results, plan: results / COHORT)
    monkeypatch.setattr(probe, "model_files", lambda settings, model: {"model.safetensors": "w"})
    return names


@pytest.fixture
def results(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    """A results directory with a finished cohort."""
    for config in PROFILE.runs():
        adapter = f"final of {config.name}" if config.trained else None
        make_run(tmp_path / COHORT / config.name, config.condition, config.seed, final_adapter_sha256=adapter)
    return tmp_path


def run(results: Path, profile: Profile = PROFILE) -> Told:
    """Run the layer."""
    progress = Told()
    probe.run(Reproduction(profile, results, Execution(), progress))
    return progress


def tree(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.mark.parametrize(("backend", "apart"), [("unsloth", True), ("vllm", True), ("local", False)])
def test_an_engine_answers_apart(tmp_path: Path, monkeypatch: Patch, backend: Any, apart: bool) -> None:
    """Its process ends with the checkpoint, and gives the card back; our own sampler needs none."""
    used: list[bool] = []

    def write(apart: bool, task: ProbeTask) -> dict[str, str | bool]:
        used.append(apart)
        task.file.touch()
        return {}

    monkeypatch.setattr(answers, "write_answers", lambda task, progress: write(False, task))
    monkeypatch.setattr(answers, "write_answers_apart", lambda task, progress: write(True, task))
    generation = msgspec.structs.replace(PROFILE.generation, backend=backend)
    config = PROFILE.run("frozen", 42, generation=generation)
    initial = Checkpoint(name="initial", condition="frozen", seed=None, adapter_sha256=None)
    (tmp_path / "bank.jsonl").touch()
    probe._probe_checkpoint(config, initial, tmp_path, tmp_path, Told())
    assert used == [apart]


def test_checkpoints_are_the_initial_model_and_every_final_adapter(results: Path) -> None:
    """Frozen runs have no checkpoint of their own: theirs is the initial one."""
    found = checkpoints(PROFILE, results / COHORT)
    assert [(c.name, c.condition, c.seed, c.adapter_sha256) for c in found] == [
        ("initial", "frozen", None, None),
        ("native-s42", "native", 42, "final of native-s42"),
        ("native-s7", "native", 7, "final of native-s7"),
    ]


def test_a_fresh_probe_asks_everyone_once(results: Path, asked: list[str]) -> None:
    """Its manifest ends complete, with one bank for all and the completions per prompt as group size."""
    run(results)
    assert asked == NAMES
    found = read_probe(results / PROBE)
    assert (found.status, found.prompts, found.completions) == ("complete", 2, 3)
    assert {checkpoint.bank_sha256 for checkpoint in found.checkpoints} == {found.bank_sha256}
    assert (results / PROBE / "initial.jsonl").read_text() == "None 3\n"


def test_a_finished_probe_is_kept(results: Path, asked: list[str]) -> None:
    run(results)
    before = tree(results)
    asked.clear()
    progress = run(results)
    assert (asked, tree(results)) == ([], before)
    assert [line for line in progress.lines if "kept" in line] == [
        f"probe/{name}: complete and verified, kept" for name in NAMES
    ]


def test_a_stopped_probe_goes_on(results: Path, asked: list[str], monkeypatch: Patch) -> None:
    """Stopped in its second checkpoint, it ends with the same files and asks the first one no more."""
    answered = probe._probe_checkpoint

    def stop(*arguments: Any) -> Any:
        if arguments[1].name == "native-s42":
            (arguments[3] / "native-s42.partial").write_text("half")
            raise KeyboardInterrupt
        return answered(*arguments)

    monkeypatch.setattr(probe, "_probe_checkpoint", stop)
    with pytest.raises(KeyboardInterrupt):
        run(results)
    assert read_probe(results / PROBE).status == "running"
    monkeypatch.setattr(probe, "_probe_checkpoint", answered)
    run(results)
    assert asked == NAMES
    assert read_probe(results / PROBE).status == "complete"


def _more_completions(results: Path) -> Profile:
    return msgspec.structs.replace(PROFILE, probe=ProbeSettings(prompts=2, completions=4))


def _another_bank(results: Path) -> Profile:
    return msgspec.structs.replace(PROFILE, probe=ProbeSettings(prompts=3, completions=3))


def _damaged_records(results: Path) -> Profile:
    (results / PROBE / "native-s7.jsonl").write_text("other\n")
    return PROFILE


def _missing_records(results: Path) -> Profile:
    (results / PROBE / "initial.jsonl").unlink()
    return PROFILE


def _altered_bank(results: Path) -> Profile:
    (results / PROBE / "bank.jsonl").write_text("other\n")
    return PROFILE


def _no_manifest(results: Path) -> Profile:
    (results / PROBE / "probe.json").unlink()
    return PROFILE


def _fewer_seeds(results: Path) -> Profile:
    return msgspec.structs.replace(PROFILE, seeds=(42,))


def _unreadable(results: Path) -> Profile:
    (results / PROBE / "probe.json").write_text("{")
    return PROFILE


@pytest.mark.parametrize(
    "change",
    [
        _more_completions,
        _another_bank,
        _damaged_records,
        _missing_records,
        _altered_bank,
        _no_manifest,
        _fewer_seeds,
        _unreadable,
    ],
)
def test_another_probe_is_refused_untouched(
    results: Path, asked: list[str], change: Callable[[Path], Profile]
) -> None:
    run(results)
    profile = change(results)
    before = tree(results)
    asked.clear()
    with pytest.raises(RunDirectoryError, match=r"another --out|restore|move"):
        run(results, profile)
    assert (asked, tree(results)) == ([], before)
