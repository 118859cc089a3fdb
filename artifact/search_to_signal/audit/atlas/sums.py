"""Sums of float32 rows in the orders in which frameworks take them: where they cancel, the order shows.

Each takes (N, G) to (N,). ``blocked`` is torch.sum on the CPU, as torch 2.5 runs it on every x86 processor.
"""

from collections.abc import Callable, Mapping

import numpy as np

from search_to_signal.audit.atlas.batch import Reals

Sum = Callable[[Reals], Reals]

# Bytes of a vector of torch's kernel, and how many of its sums run side by side.
_VECTOR, _CHAINS = 32, 4


def blocked(rows: Reals) -> Reals:
    """As torch.sum adds a contiguous row of fewer than 512: lanes first, four chains of them side by side."""
    count, width = rows.shape[1], _VECTOR // rows.itemsize
    if count < width:
        return _chained(rows[:, :, None])[:, 0]
    whole = count // width * width
    lanes = _chained(rows[:, :whole].reshape(len(rows), -1, width))
    return in_turn(np.concatenate([rows[:, whole:], lanes], axis=1))


def in_turn(rows: Reals) -> Reals:
    """One after another, as index_add_ and bincount do."""
    total = np.zeros(len(rows), dtype=rows.dtype)
    for column in rows.T:
        total += column
    return total


def pairwise(rows: Reals) -> Reals:
    """As numpy adds a row."""
    total: Reals = np.add.reduce(np.ascontiguousarray(rows), axis=1)
    return total


def _chained(blocks: Reals) -> Reals:
    """(N, V, W) -> (N, W): every fourth block is of one chain, what is left over goes to the first."""
    full = blocks.shape[1] // _CHAINS * _CHAINS
    chains = np.zeros((len(blocks), _CHAINS, blocks.shape[2]), dtype=blocks.dtype)
    for start in range(0, full, _CHAINS):
        chains += blocks[:, start : start + _CHAINS]
    total: Reals = chains[:, 0]
    for rest in range(full, blocks.shape[1]):
        total = total + blocks[:, rest]
    for chain in range(1, _CHAINS):
        total = total + chains[:, chain]
    return total


SUMS: Mapping[str, Sum] = {"blocked": blocked, "in turn": in_turn, "pairwise": pairwise}
