"""The exponential noise that decides every draw of the ants: drawn once by torch, then kept on disk.

Every instance starts its own generator from the same seed, so the k-th draw of any colony of that many
ants and nodes sees the same block of exponentials, whatever the instance and the heuristic.
"""

import functools
import importlib.metadata
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_to_signal.problems.ant_colony import store
from search_to_signal.problems.ant_colony.store import Noise

GENERATOR_SEED = 42
LANE = 64


@dataclass(frozen=True)
class Colony:
    """The shape of the noise: how many draws a run may need, of how many ants over how many nodes."""

    draws: int
    ants: int
    nodes: int


def torch_version() -> str:
    """Version of the installed torch, without importing it."""
    return importlib.metadata.version("torch")


@functools.cache  # a pure function of its argument on one machine; the arrays are read-only
def noise_for(colony: Colony) -> Noise:
    """Return the noise of a colony from memory, from the user's cache, or drawn now, which imports torch."""
    name = f"torch-{torch_version()}-{store.machine()}-{colony.draws}x{colony.ants}x{colony.nodes}"
    stored = store.load(name)
    if stored is not None:
        return stored
    drawn = draw_noise(colony)
    store.save(name, drawn)
    return drawn


def draw_noise(colony: Colony) -> Noise:
    """Draw the noise and try whether torch chooses and sums as the kernels do; imports torch."""
    from search_to_signal.problems.ant_colony import agreement

    exact = draw_exponentials(colony)
    noise = Noise(exact, coarsen(exact), agreement.kernels_agree(exact))
    noise.exact.setflags(write=False)
    noise.coarse.setflags(write=False)
    return noise


def draw_exponentials(colony: Colony) -> NDArray[np.float64]:
    """Let torch draw the (draws, ants, nodes) blocks that its multinomial would draw; imports torch."""
    import torch

    generator = torch.Generator().manual_seed(GENERATOR_SEED)
    blocks = np.empty((colony.draws, colony.ants, colony.nodes))
    for block in blocks:
        drawn = torch.empty(colony.ants, colony.nodes, dtype=torch.float64)
        block[...] = drawn.exponential_(1, generator=generator).numpy()
    return blocks


def coarsen(exact: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Round 1 / exact to nine significant bits: the upper 16 of the 31 bits of a positive float32.

    Columns are padded with zeros to whole vector lanes.
    """
    draws, ants, nodes = exact.shape
    coarse = np.zeros((draws, ants, -(-nodes // LANE) * LANE), np.uint16)
    for rows, block in zip(coarse, exact, strict=True):
        bits = (1.0 / block).astype(np.float32).view(np.uint32)
        rows[:, :nodes] = (bits + (1 << 14)) >> 15
    return coarse
