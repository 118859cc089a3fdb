"""Processes that a checkout starts."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


@contextmanager
def contained_children() -> Iterator[None]:
    """Let child processes write no bytecode into the checkout, and end a Ray session that begins meanwhile.

    Workers of Ray import from the directory that goes away with the checkout.
    """
    before, told = sys.modules.get("ray"), os.environ.get(_NO_BYTECODE)
    os.environ[_NO_BYTECODE] = "1"
    try:
        yield
    finally:
        os.environ.pop(_NO_BYTECODE)
        if told is not None:
            os.environ[_NO_BYTECODE] = told
        ray = sys.modules.get("ray")
        if ray is not None and ray is not before and ray.is_initialized():
            ray.shutdown()
