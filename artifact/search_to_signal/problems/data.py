"""Frozen instances, and checks that regenerated arrays are the recorded ones, to the last bit."""

import hashlib
from collections.abc import Iterable, Iterator
from types import MappingProxyType

import numpy as np

from search_to_signal.errors import DataHashError
from search_to_signal.problems.base import Array, Instance


def sha256_of(array: Array) -> str:
    """SHA-256 of an array as little-endian float64 in C order."""
    return hashlib.sha256(np.ascontiguousarray(array, dtype="<f8").tobytes()).hexdigest()


def check_sha256(what: str, array: Array, expected: str) -> None:
    """Raise DataHashError unless the array has the recorded bytes."""
    actual = sha256_of(array)
    if actual != expected:
        raise DataHashError(
            f"{what} has SHA-256 {actual}, expected {expected}: this numpy draws other instances; "
            "install the locked environment (uv sync --locked) and run again"
        )


def frozen_instance(**arrays: Array) -> Instance:
    """Return the arrays as an instance: read-only contiguous copies."""
    copies = {name: np.array(array, order="C") for name, array in arrays.items()}
    for copy in copies.values():
        copy.setflags(write=False)
    return MappingProxyType(copies)


def instance_bytes(instances: Iterable[Instance]) -> Iterator[bytes]:
    """Yield name, element type, shape and content of every array: what tells instances apart."""
    for instance in instances:
        for name, array in instance.items():
            yield f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes()


def unit_square(seed: int, count: int, nodes: int) -> Array:
    """(count, nodes, 2) places, uniform in the unit square."""
    return np.random.RandomState(seed).rand(count, nodes, 2)


def euclidean(coordinates: Array) -> Array:
    """Distance matrices (N, n, n) of coordinates (N, n, 2), plain float64."""
    delta = coordinates[:, :, None, :] - coordinates[:, None, :, :]
    out: Array = np.sqrt((delta**2).sum(axis=-1))
    return out
