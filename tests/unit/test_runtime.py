"""Switches of the whole process are set before the libraries that read them are loaded."""

import os
import subprocess
import sys

CODE = "from search_to_signal.cli import main; main(['verify', '/nowhere']); import torch; torch.ones(1)"


def spins(given: dict[str, str]) -> str:
    """How often OpenMP says that an idle thread looks before it sleeps, after a command has begun."""
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**clean, **given, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (line for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line)
    return line.split("'")[1]


def test_the_command_line_lets_idle_threads_sleep() -> None:
    """They do not spin once a command has begun, unless the user asks for it."""
    assert spins({}) == "0"
    assert spins({"OMP_WAIT_POLICY": "ACTIVE"}) != "0"
