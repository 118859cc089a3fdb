"""A run that is asked to end does so after its group, or at once where it is asked twice."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from search_to_signal.base.processes import command_line
from search_to_signal.base.settings import canonical_json
from search_to_signal.run.config import RunConfig
from search_to_signal.run.execution import RunProcesses
from search_to_signal.run.profile import Profile

SELDOM = ("--checkpoint-every", "400")


@contextmanager
def started(config: RunConfig, out: Path, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A run in a process of its own, which is asked to end with the context, and is in its second group."""
    command = command_line("run-one", "--out", str(out), *SELDOM, "--parent", str(os.getpid()))
    with RunProcesses() as processes, processes.start(command, log, config.threads) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(canonical_json(config))
        process.stdin.close()
        assert any(line.startswith(b"progress 1 500") for line in process.stdout)
        yield process


def test_a_run_that_is_stopped_ends_in_order(profile: Profile, tmp_path: Path) -> None:
    """It says so on its line and in its log, with a checkpoint of its last group, and leaves no process."""
    config = msgspec.structs.replace(profile.run("native", 42), groups=500)
    out, log = tmp_path / "run", tmp_path / "run.log"
    with started(config, out, log) as process:
        assert process.stdout is not None
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)  # as from a terminal: it is one with the other
        lines = process.stdout.read().decode().splitlines()
        assert process.wait() == 130
    done = (out / "steps.jsonl").read_bytes().count(b"\n")
    assert log.read_text() == f"s2s: stopped after {done} of 500 groups\n"
    assert lines[-1] == f"stopped after {done} of 500 groups"
    assert any(line.endswith(" 500 stopping after this group") for line in lines)
    assert (out / "checkpoint" / f"{done:08d}.json").is_file()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_run_that_is_asked_twice_ends_at_once(profile: Profile, tmp_path: Path) -> None:
    """In the middle of a group, still with no traceback, and resumable from its last checkpoint."""
    long = msgspec.structs.replace(profile.generation, group_size=64)
    config = msgspec.structs.replace(profile.run("frozen", 42), groups=500, generation=long)
    out, log = tmp_path / "run", tmp_path / "run.log"
    with started(config, out, log) as process:
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.6)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 130
    assert log.read_text() == "s2s: stopped\n"
    assert [path.name for path in (out / "checkpoint").glob("*.json")] == ["00000000.json"]
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
