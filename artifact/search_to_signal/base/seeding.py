"""Named random streams: every draw in a run comes from (run seed, *path), and from nothing else."""

import hashlib
import json

import numpy as np


def derive_seed(seed: int, *path: str | int) -> int:
    """Return a 63-bit integer that depends on the run seed and on the name of the stream alone."""
    name = json.dumps([seed, *path], separators=(",", ":")).encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> 1


def stream(seed: int, *path: str | int) -> np.random.Generator:
    """Return a fresh generator for the named stream; equal names give equal draws."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *path)))
