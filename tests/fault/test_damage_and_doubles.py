"""What is damaged, changed or in use is refused by name and left as it is; what is only torn is mended."""

import errno
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cohorts import Told
from tests.fault.stand_ins import assembled, configuration, records_of, tree

from search_to_signal.base.errors import RecordError, RunDirectoryError
from search_to_signal.records.manifest import read_manifest, write_manifest
from search_to_signal.records.provenance import environment, source
from search_to_signal.run import resuming
from search_to_signal.run.config import RunConfig
from search_to_signal.run.directory import lock_directory, set_aside
from search_to_signal.run.loop import run

# Whichever command found it: s2s record always goes on, and has no option for it.
REMEDY = "restore it from a copy, or move the run away to begin again$"


class Stopped(BaseException):
    """The process is gone."""


class StopsAt(Told):
    """Stops a run when a group is done."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self._group = group

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        if done == self._group:
            raise Stopped


def go(config: RunConfig, directory: Path, progress: Any = None, resume: bool = True) -> None:
    """Run, or go on."""
    run(config, directory, progress or Told(), resume=resume, assemble=assembled)


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """A run of four groups."""
    return configuration(tmp_path / "model", groups=4)


@pytest.fixture
def stopped(config: RunConfig, tmp_path: Path) -> Path:
    """Its directory, stopped after three of them, with one line half written."""
    with pytest.raises(Stopped):
        go(config, tmp_path / "run", StopsAt(3))
    with (tmp_path / "run" / "steps.jsonl").open("ab") as file:
        file.write(b'{"step":3,"oper')
    return tmp_path / "run"


@pytest.fixture
def whole(config: RunConfig, tmp_path: Path) -> dict[str, bytes]:
    """The records of the undisturbed run."""
    go(config, tmp_path / "whole")
    return records_of(tmp_path / "whole")


def test_a_stopped_run_says_so_and_goes_on(config: RunConfig, stopped: Path, whole: dict[str, bytes]) -> None:
    """It is ``running`` until it is finished; afterwards its manifest counts the interruption."""
    assert read_manifest(stopped).status == "running"
    go(config, stopped)
    found = read_manifest(stopped)
    assert (found.status, found.interruptions) == ("complete", 1)
    assert records_of(stopped) == whole
    before = tree(stopped)
    go(config, stopped)
    assert tree(stopped) == before


def test_a_torn_checkpoint_gives_way_to_the_one_before(
    config: RunConfig, stopped: Path, whole: dict[str, bytes]
) -> None:
    """Half a checkpoint, or another learner than it speaks of, is passed over."""
    for name, damage in (("00000003.json", b'{"done":3'), ("00000003.safetensors", b"other")):
        copy = stopped.with_name(name)
        subprocess.run(["cp", "-r", stopped, copy], check=True)
        (copy / "checkpoint" / name).write_bytes(damage)
        go(config, copy)
        assert records_of(copy) == whole
    assert sorted(path.stem for path in (stopped / "checkpoint").glob("*.json")) == ["00000002", "00000003"]


def _shorten(directory: Path) -> None:
    os.truncate(directory / "completions.jsonl", 100)


def _remove(directory: Path) -> None:
    (directory / "generations.jsonl").unlink()


def _flip(directory: Path) -> None:
    data = bytearray((directory / "timings.jsonl").read_bytes())
    data[5] ^= 1
    (directory / "timings.jsonl").write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_shorten, rf"completions\.jsonl is damaged \(it has 100 bytes.*: {REMEDY}"),
        (_remove, rf"generations\.jsonl is damaged \(it is missing.*: {REMEDY}"),
        (_flip, rf"timings\.jsonl is damaged \(its first.*: {REMEDY}"),
    ],
)
def test_damaged_records_are_refused(
    config: RunConfig, stopped: Path, damage: Callable[[Path], None], named: str
) -> None:
    """A file that is shorter than a checkpoint counted, or differs, is named, and nothing is cut."""
    damage(stopped)
    before = tree(stopped)
    with pytest.raises(RecordError, match=named):
        go(config, stopped)
    assert tree(stopped) == before


@pytest.mark.parametrize("keep", [True, False])
def test_groups_without_a_whole_checkpoint_are_refused(config: RunConfig, stopped: Path, keep: bool) -> None:
    """Records are never thrown away because the checkpoints are torn or gone."""
    for path in (stopped / "checkpoint").glob("*.json"):
        path.write_bytes(b"{") if keep else path.unlink()
    before = tree(stopped)
    with pytest.raises(
        RunDirectoryError,
        match=r"checkpoint.*: restore (it|one) from a copy, or move the run away to begin again$",
    ):
        go(config, stopped)
    assert tree(stopped) == before


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("config", "configuration: seed"),
        ("source", "source: sha256"),
        ("model", "model files: model.safetensors"),
        ("environment", "environment: cpu, package torch"),
    ],
)
def test_a_run_never_goes_on_as_another(
    config: RunConfig, stopped: Path, what: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another configuration, source, model or machine is refused by name, and not a byte changes."""
    found, facts, files = source(), environment(), {"model.safetensors": "0" * 64}
    packages = {**facts.packages, "torch": "0.1"}
    if what == "config":
        config = msgspec.structs.replace(config, seed=4)
    if what == "source":
        other = msgspec.structs.replace(found, sha256="0" * 64)
        monkeypatch.setattr(resuming, "source", lambda: other)
    if what == "model":
        monkeypatch.setattr(resuming, "model_files", lambda settings, model: files)
    if what == "environment":
        machine = msgspec.structs.replace(facts, cpu="other", kernel="other", packages=packages)
        monkeypatch.setattr(resuming, "environment", lambda card=False: machine)
    before = tree(stopped)
    with pytest.raises(RunDirectoryError, match=named):
        go(config, stopped)
    assert tree(stopped) == before


def test_without_resume_nothing_is_touched(config: RunConfig, stopped: Path) -> None:
    """An unfinished run is continued only when asked for; a directory of something else not even then."""
    before = tree(stopped)
    with pytest.raises(RunDirectoryError, match="not empty"):
        go(config, stopped, resume=False)
    assert tree(stopped) == before
    (stopped / "manifest.json").unlink()
    before = tree(stopped)
    with pytest.raises(RunDirectoryError, match="holds no run"):
        go(config, stopped)
    assert tree(stopped) == before


HOLDER = """
import os, sys, time
from pathlib import Path
from search_to_signal.run.directory import lock_directory
with lock_directory(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_processes_never_write_one_run(config: RunConfig, stopped: Path, whole: dict[str, bytes]) -> None:
    """While one process holds a run, another is refused and may not move it; SIGKILL lets go of it."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(stopped)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        before = tree(stopped)
        for attempt in (lambda: go(config, stopped), lambda: set_aside(stopped)):
            with pytest.raises(RunDirectoryError, match="another process is writing"):
                attempt()
        assert tree(stopped) == before
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
    go(config, stopped)
    assert records_of(stopped) == whole


def test_waiting_for_the_other_is_bounded(tmp_path: Path) -> None:
    """A second writer waits as long as it was told to, then gives up."""
    with lock_directory(tmp_path):
        start = time.monotonic()
        with pytest.raises(RunDirectoryError, match="another process"), lock_directory(tmp_path, wait_s=0.5):
            raise AssertionError("held twice")
        assert 0.5 <= time.monotonic() - start < 30.0
    with lock_directory(tmp_path):
        pass


def test_a_full_disk_is_one_line_and_can_be_mended(
    config: RunConfig, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """Where the system takes no more bytes the run ends with one error; with room again it goes on."""
    directory, soft = tmp_path / "full", resource.getrlimit(resource.RLIMIT_FSIZE)
    sizes = sorted(len(whole[name]) for name in ("completions.jsonl", "generations.jsonl"))
    try:
        for size in (100, sizes[0] // 2, sizes[0] - 10):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, soft[1]))
            with pytest.raises(RunDirectoryError, match=rf"cannot write below {directory} \(File too large"):
                go(config, directory)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft)
    go(config, directory)
    assert records_of(directory) == whole


def test_no_space_left_is_the_same_error(
    config: RunConfig, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full in the middle of a line leaves half of it, which is cut when the run goes on."""
    room, real = [20_000], os.write

    def write(descriptor: int, data: Any) -> int:
        taken = real(descriptor, bytes(data)[: room[0]]) if room[0] else 0
        room[0] -= taken
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        return taken

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(RunDirectoryError, match=r"No space left on device.*same command"):
        go(config, tmp_path / "full")
    assert any(not data.endswith(b"\n") for data in tree(tmp_path / "full").values())
    room[0] = 1 << 30
    go(config, tmp_path / "full")
    assert records_of(tmp_path / "full") == whole


def test_repeats_are_known_after_a_stop(config: RunConfig, stopped: Path, whole: dict[str, bytes]) -> None:
    """A program that was evaluated before the stop is still a repeat after it."""
    cut = (stopped / "completions.jsonl").read_bytes()
    go(config, stopped)
    assert b"repeat" in (stopped / "completions.jsonl").read_bytes()[len(cut) :]
    assert records_of(stopped) == whole


def test_a_complete_run_without_sums_only_gets_its_sums(config: RunConfig, tmp_path: Path) -> None:
    """Stopped between manifest and checksums, nothing runs again."""
    go(config, tmp_path / "run")
    before = tree(tmp_path / "run")
    (tmp_path / "run" / "SHA256SUMS").unlink()
    (tmp_path / "run" / "manifest.json.tmp").write_bytes(b"{")
    run(config, tmp_path / "run", Told(), resume=True, assemble=lambda config: 1 / 0)  # type: ignore
    assert tree(tmp_path / "run") == before


def test_unfinished_manifests_stay_readable(stopped: Path) -> None:
    """A manifest from before interruptions were counted is one without any."""
    manifest = read_manifest(stopped)
    write_manifest(stopped, manifest)
    text = (stopped / "manifest.json").read_text().replace('  "interruptions": 0,\n', "")
    (stopped / "manifest.json").write_text(text)
    assert read_manifest(stopped) == manifest
