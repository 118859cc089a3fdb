"""The quick tests start no Python: whatever does is marked, or fails."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parent
TESTS = """
import os, subprocess, sys
import pytest

def start():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.fixture
def started():
    start()

def test_itself():
    start()

def test_by_a_fixture(started):
    pass

def test_a_fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

@pytest.mark.slow
def test_marked():
    start()

def test_another_program():
    subprocess.run(["true"], check=True)
"""


@pytest.mark.slow
def test_what_starts_python_unmarked_fails(tmp_path: Path) -> None:
    """By itself, by its fixture or by a fork; marked it may, and so may all that start another program."""
    shutil.copy(UNIT / "conftest.py", tmp_path)
    (tmp_path / "test_them.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", f"--rootdir={tmp_path}", "-p", "no:cacheprovider"]
    paths = ["-o", f"pythonpath={UNIT.parents[1]}", str(tmp_path)]
    done = subprocess.run([*command, *paths], cwd=tmp_path, capture_output=True, text=True, check=False)
    failed = set(re.findall(r"^ERROR \S+::(\w+)", done.stdout, re.MULTILINE))
    assert failed == {"test_itself", "test_by_a_fixture", "test_a_fork"}, done.stdout + done.stderr
    assert "5 passed" in done.stdout
    assert "mark it slow, or its module" in done.stdout
