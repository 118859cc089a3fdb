"""Files are written as ever, and nobody waits until the disk has them: no test cuts the power.

What is lost with it is a test of its own (tests/fault/test_stops_everywhere.py), which remembers what was
synced. A wait takes milliseconds in which nothing computes, and a report waits two hundred times.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def unsynced() -> Iterator[None]:
    """Within it, and in processes that it forks, ``os.fsync`` asks no more than that a descriptor is open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _open_descriptor)
        yield


def _open_descriptor(descriptor: int) -> None:
    os.fstat(descriptor)
