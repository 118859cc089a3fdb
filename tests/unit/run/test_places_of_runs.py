"""A cohort loses nothing: it refuses what is foreign, sets aside what is unfinished, keeps what is whole."""

import hashlib
import io
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.cohorts import Told, run_cohort
from tests.profiles import plain_profile

from search_to_signal.base.errors import RunDirectoryError, RunFailedError
from search_to_signal.base.settings import canonical_json
from search_to_signal.models.base import GenerationSettings
from search_to_signal.models.files import checked_files
from search_to_signal.records.layers import COHORT
from search_to_signal.records.manifest import INTERRUPTED, MANIFEST, read_manifest, read_roster
from search_to_signal.records.provenance import environment, source
from search_to_signal.records.reader import COMPLETIONS
from search_to_signal.run import execution
from search_to_signal.run.config import RunConfig
from search_to_signal.run.planned_runs import Reproduction, plan_runs
from search_to_signal.run.profile import Profile
from search_to_signal.run.resuming import begin_again_where_changed

pytestmark = pytest.mark.slow

Make = Callable[..., Path]


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    """Two runs of a model whose files are there and checked."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"w")
    (model / "SHA256SUMS").write_text(f"{hashlib.sha256(b'w').hexdigest()}  model.safetensors\n")
    return plain_profile(model=str(model), seeds=(42,), generation=GenerationSettings(group_size=4))


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, make_run: Make) -> list[RunConfig]:
    """Instead of a process of its own, every run is a directory made by hand; lists what was started."""
    started: list[RunConfig] = []

    class Process:
        """Takes a configuration on standard input and leaves a complete run behind."""

        returncode = 0

        def __init__(self, command: list[str], **streams: Any) -> None:
            self.directory = Path(command[command.index("--out") + 1])
            self.stdin = SimpleNamespace(write=self.start, close=lambda: None)
            self.stdout = io.BytesIO(b"progress 1 4 best -6.0\nprogress 4 4\n12 groups per minute\n")
            streams["stderr"].write(b"a warning\n")

        def start(self, text: bytes) -> None:
            config = msgspec.json.decode(text, type=RunConfig)
            started.append(config)
            if self.directory.exists():
                shutil.rmtree(self.directory)
            complete(make_run, self.directory, config)

        def wait(self, timeout: float | None = None) -> int:
            return self.returncode

        poll = wait

    processes = SimpleNamespace(Popen=Process, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(execution, "subprocess", processes)
    return started


def complete(make_run: Make, directory: Path, config: RunConfig, **changes: Any) -> None:
    """Write a complete run of a configuration, from source and model as they are."""
    make_run(
        directory,
        config.condition,
        config.seed,
        **{
            "config": msgspec.to_builtins(config),
            "source": source(),
            "model_files": checked_files(Path(config.model)),
            **changes,
        },
    )


def tree(directory: Path) -> dict[str, bytes | None]:
    """Every path below a directory with its bytes."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


def test_a_fresh_cohort_runs_everything(profile: Profile, launched: list[RunConfig], tmp_path: Path) -> None:
    progress, out = Told(), tmp_path / "results" / "deep"
    made = run_cohort(profile, out, progress)
    assert launched == list(profile.runs())[::-1]
    assert made == [out / "frozen-s42", out / "native-s42"]
    assert ("cohort/frozen-s42", 1, 4, "best -6.0") in progress.updates
    assert ("cohort/native-s42", 4, 4, "") in progress.updates
    assert "cohort/native-s42: 12 groups per minute" in progress.lines
    assert (out / "frozen-s42.log").read_bytes() == b"a warning\n"
    check = ["sha256sum", "-c", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=out, check=False).returncode == 0


def test_complete_runs_are_kept(profile: Profile, launched: list[RunConfig], tmp_path: Path) -> None:
    run_cohort(profile, tmp_path / "out", Told())
    before, progress = tree(tmp_path / "out"), Told()
    launched.clear()
    run_cohort(profile, tmp_path / "out", progress)
    assert launched == []
    assert tree(tmp_path / "out") == before
    assert [line for line in progress.lines if "kept" in line] == [
        "cohort/frozen-s42: complete and verified, kept",
        "cohort/native-s42: complete and verified, kept",
    ]


def test_unfinished_runs_are_set_aside_whole(
    profile: Profile, launched: list[RunConfig], make_run: Make, tmp_path: Path
) -> None:
    """Interrupted twice, a run starts afresh, and both attempts lie under interrupted/ with their logs."""
    out, config = tmp_path / "out", profile.runs()[1]
    attempts = []
    for number in (1, 2):
        complete(make_run, out / config.name, config, status="running")
        (out / config.name / "config.json").write_bytes(canonical_json(config))
        (out / config.name / "completions.jsonl").write_bytes(b'{"cut')
        (out / f"{config.name}.log").write_text(f"traceback {number}")
        attempts.append(tree(out / config.name))
        run_cohort(profile, out, Told())
        assert launched.count(config) == number
        shelf = out / "interrupted"
        for old, attempt in enumerate(attempts, start=1):
            assert tree(shelf / f"{config.name}-{old}") == attempt
            assert (shelf / f"{config.name}-{old}.log").read_text() == f"traceback {old}"
        if number == 1:
            (out / config.name).rename(tmp_path / "done")
    assert launched.count(profile.runs()[0]) == 1


def test_a_run_interrupted_before_its_manifest_starts_again(
    profile: Profile, launched: list[RunConfig], tmp_path: Path
) -> None:
    """What a run leaves in its first seconds, an empty directory or its configuration, is no other run."""
    out = tmp_path / "first"
    (out / "frozen-s42").mkdir(parents=True)
    (out / "native-s42").mkdir()
    (out / "native-s42" / "config.json").write_bytes(canonical_json(profile.runs()[1]))
    run_cohort(profile, out, Told())
    assert launched == list(profile.runs())[::-1]


def test_a_run_interrupted_before_its_sums_starts_again(
    profile: Profile, launched: list[RunConfig], make_run: Make, tmp_path: Path
) -> None:
    """A run whose checksums were never written cannot be verified, and is set aside as unfinished."""
    complete(make_run, tmp_path / "native-s42", profile.runs()[1])
    (tmp_path / "native-s42" / "SHA256SUMS").rename(tmp_path / "native-s42" / "config.json")
    before = tree(tmp_path / "native-s42")
    run_cohort(profile, tmp_path, Told())
    assert launched == list(profile.runs())[::-1]
    assert tree(tmp_path / "interrupted" / "native-s42-1") == before


def _foreign_file(out: Path, make_run: Make, profile: Profile) -> None:
    (out / "native-s42").mkdir(parents=True)
    (out / "native-s42" / "thesis.tex").write_text("years of work")


def _other_config(out: Path, make_run: Make, profile: Profile) -> None:
    config = msgspec.structs.replace(profile.runs()[1], groups=5)
    complete(make_run, out / "native-s42", config)


def _other_unfinished(out: Path, make_run: Make, profile: Profile) -> None:
    config = msgspec.structs.replace(profile.runs()[1], threads=2)
    complete(make_run, out / "native-s42", config, status="running")


def _other_source(out: Path, make_run: Make, profile: Profile) -> None:
    config = profile.runs()[1]
    complete(make_run, out / "native-s42", config, source=msgspec.structs.replace(source(), sha256="other"))


def _other_model(out: Path, make_run: Make, profile: Profile) -> None:
    complete(make_run, out / "native-s42", profile.runs()[1], model_files={"model.safetensors": "other"})


def _damaged(out: Path, make_run: Make, profile: Profile) -> None:
    complete(make_run, out / "native-s42", profile.runs()[1])
    (out / "native-s42" / "steps.jsonl").write_text("")


def _other_name(out: Path, make_run: Make, profile: Profile) -> None:
    config = msgspec.structs.replace(profile.runs()[1], seed=7)
    complete(make_run, out / "native-s7", config)


def _is_a_run(out: Path, make_run: Make, profile: Profile) -> None:
    complete(make_run, out, profile.runs()[1])


def _is_a_file(out: Path, make_run: Make, profile: Profile) -> None:
    out.write_text("notes")


def _run_is_a_file(out: Path, make_run: Make, profile: Profile) -> None:
    out.mkdir()
    (out / "native-s42").write_text("notes")


@pytest.mark.parametrize(
    "prepare",
    [
        _foreign_file,
        _other_config,
        _other_unfinished,
        _other_source,
        _other_model,
        _damaged,
        _other_name,
        _is_a_run,
        _is_a_file,
        _run_is_a_file,
    ],
)
def test_foreign_directories_are_refused_untouched(
    profile: Profile,
    launched: list[RunConfig],
    make_run: Make,
    tmp_path: Path,
    prepare: Callable[[Path, Make, Profile], None],
) -> None:
    """Anything but this cohort's own runs is refused before a run starts, and not a byte changes."""
    out = tmp_path / "out"
    prepare(out, make_run, profile)
    before = tree(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"another --out|restore"):
        run_cohort(profile, out, Told())
    assert launched == []
    assert tree(tmp_path) == before


def test_runs_of_a_plan_stay_whichever_source_made_them(
    profile: Profile, launched: list[RunConfig], make_run: Make, tmp_path: Path
) -> None:
    """A later version records what is missing, in the plan's order; another plan, and damage, are refused."""
    out, plan = tmp_path / "out", "a" * 64
    more = msgspec.structs.replace(profile, seeds=(42, 7))
    first, second, *rest = more.runs()
    older = msgspec.structs.replace(source(), sha256="other")
    complete(make_run, out / first.name, first, source=older, plan_sha256=plan)
    lacking = msgspec.to_builtins(second)
    del lacking["learner"]["credit"]
    facts = {"source": source(), "model_files": checked_files(Path(second.model)), "plan_sha256": plan}
    make_run(out / second.name, second.condition, second.seed, config=lacking, **facts)
    # As a version without that setting wrote it.
    assert read_manifest(out / second.name).config_sha256 != second.sha256
    how = execution.Execution(1, 1, resume=True, plan=plan)
    Reproduction(more, tmp_path, how, Told()).run_all({out: more.runs()})
    assert launched == rest
    with pytest.raises(RunDirectoryError, match="another plan"):
        plan_runs(more.runs(), out, execution.Execution(plan="b" * 64))
    with pytest.raises(RunDirectoryError, match="another version"):
        plan_runs(more.runs(), out, execution.Execution())
    with (out / second.name / COMPLETIONS).open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(RunDirectoryError, match=COMPLETIONS):
        plan_runs(more.runs(), out, execution.Execution(plan=plan))


def test_runs_that_are_finished_elsewhere_are_not_run_again(
    profile: Profile, launched: list[RunConfig], make_run: Make, tmp_path: Path
) -> None:
    """A finished run's manifest from another machine is enough; other plans and other runs are not it."""
    out, plan, shelf = tmp_path / "results" / COHORT, "a" * 64, tmp_path / "packed"
    more = msgspec.structs.replace(profile, seeds=(42, 7))
    first, second, third, fourth = more.runs()
    complete(make_run, shelf / COHORT / first.name, first, plan_sha256=plan)
    for path in (shelf / COHORT / first.name).iterdir():
        if path.name != MANIFEST:
            path.unlink()
    complete(make_run, shelf / COHORT / second.name, second, plan_sha256="b" * 64)
    complete(make_run, shelf / COHORT / third.name, first, plan_sha256=plan)
    complete(make_run, shelf / COHORT / fourth.name, fourth, plan_sha256=plan, status="running")
    how = execution.Execution(1, 1, resume=True, plan=plan, finished_runs=shelf)
    Reproduction(more, tmp_path / "results", how, Told()).run_all({out: more.runs()})
    assert launched == [second, third, fourth]
    assert read_roster(out) == sorted(config.name for config in more.runs())


def test_what_another_version_began_begins_again(profile: Profile, make_run: Make, tmp_path: Path) -> None:
    """An unfinished run of a plan goes on where nothing changed, and is moved aside, whole, where it did."""
    config = profile.runs()[0]
    older = msgspec.structs.replace(source(), sha256="other")
    cases: dict[str, dict[str, Any]] = {
        "same": {},
        "older": {"source": older},
        "replanned": {"plan_sha256": "b" * 64},
        "done": {"source": older, "status": "complete"},
    }
    for name, changes in cases.items():
        directory = tmp_path / name / config.name
        facts = {"environment": environment(), "status": "running", "plan_sha256": "a" * 64}
        complete(make_run, directory, config, **{**facts, **changes})
        before = tree(directory)
        begin_again_where_changed(directory, config, "a" * 64)
        aside, moved = tmp_path / name / INTERRUPTED / f"{config.name}-1", name in ("older", "replanned")
        assert aside.exists() == moved
        assert tree(aside if moved else directory) == before
    begin_again_where_changed(tmp_path / "nothing" / config.name, config, "a" * 64)


def test_more_seeds_may_join_a_cohort(profile: Profile, launched: list[RunConfig], tmp_path: Path) -> None:
    """A profile that gained a seed keeps the finished runs and adds the new ones."""
    run_cohort(profile, tmp_path / "out", Told())
    launched.clear()
    wider = msgspec.structs.replace(profile, seeds=(42, 7))
    assert [place.done for place in plan_runs(wider.runs(), tmp_path / "out", execution.Execution())] == [
        True,
        True,
        False,
        False,
    ]
    run_cohort(wider, tmp_path / "out", Told())
    assert [config.seed for config in launched] == [7, 7]


def test_failed_runs_name_their_log(
    profile: Profile, launched: list[RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends badly is an error with the run's name, its code, and where it said why."""
    monkeypatch.setattr(execution.subprocess.Popen, "returncode", 8)
    with pytest.raises(RunFailedError, match=r"native-s42 ended with exit code 8.*native-s42\.log"):
        run_cohort(profile, tmp_path / "out", Told())
