"""Disks that nobody waits for, and one that is full.

Files are written as ever, and nobody waits until the disk has them: no test cuts the power.

What is lost with it is a test of its own (tests/fault/test_stops_everywhere.py), which remembers what was
synced. A wait takes milliseconds in which nothing computes, and a report waits two hundred times.
"""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from search_to_signal.base.processes import command_line


@contextmanager
def unsynced() -> Iterator[None]:
    """Within it, and in processes that it forks, ``os.fsync`` asks no more than that a descriptor is open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _open_descriptor)
        yield


def _open_descriptor(descriptor: int) -> None:
    os.fstat(descriptor)


def on_a_full_disk(*arguments: str, file_bytes: int) -> "subprocess.CompletedProcess[str]":
    """A command in a process of its own, none of whose files gets more bytes; bytecode would be cut, too."""
    return subprocess.run(
        command_line(*arguments),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes)),
    )
