"""A run that is asked to end does so between two of its operations."""

import os
from pathlib import Path

import msgspec
import pytest

from search_to_signal.config import canonical_json
from search_to_signal.profiles.profile import Profile
from search_to_signal.runtime import command_line
from search_to_signal.scheduling.execution import RunProcesses


def test_a_run_that_is_stopped_ends_in_order(profile: Profile, tmp_path: Path) -> None:
    """It says so in its log, with no traceback, and leaves no process behind; records stay resumable."""
    config = msgspec.structs.replace(profile.run("native", 42), groups=500)
    out, log = tmp_path / "run", tmp_path / "run.log"
    command = command_line("run-one", "--out", str(out), "--parent", str(os.getpid()))
    with RunProcesses() as processes, processes.start(command, log, config.threads) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(canonical_json(config))
        process.stdin.close()
        assert any(line.startswith(b"progress 1 500") for line in process.stdout)
    assert process.returncode == 130
    assert log.read_text() == "s2s: stopped\n"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert (out / "checkpoint" / "00000001.json").is_file()
