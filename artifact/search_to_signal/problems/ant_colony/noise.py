"""The exponential noise that decides every draw of the ants, drawn once by torch and kept on disk.

Every instance starts its own generator from the same seed, so the k-th draw of any colony of that many
ants and nodes sees the same block of exponentials, whatever the instance and the heuristic.
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GENERATOR_SEED = 42
LANE = 64


@dataclass(frozen=True)
class Noise:
    """exact (draws, ants, nodes) float64; coarse (draws, ants, width) uint16, the upper bits of 1 / exact."""

    exact: NDArray[np.float64]
    coarse: NDArray[np.uint16]


def draw_exponentials(draws: int, ants: int, nodes: int) -> NDArray[np.float64]:
    """Let torch draw the blocks that its multinomial would draw; needs torch."""
    import torch

    generator = torch.Generator().manual_seed(GENERATOR_SEED)
    blocks = torch.empty(draws, ants, nodes, dtype=torch.float64)
    for block in blocks:
        block.copy_(torch.empty(ants, nodes, dtype=torch.float64).exponential_(1, generator=generator))
    out: NDArray[np.float64] = blocks.numpy()
    return out


def coarsen(exact: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Round 1 / exact to nine significant bits: the upper 16 of the 31 bits of a positive float32.

    Columns are padded to whole vector lanes.
    """
    draws, ants, nodes = exact.shape
    coarse = np.zeros((draws, ants, -(-nodes // LANE) * LANE), np.uint16)
    bits = (1.0 / exact).astype(np.float32).view(np.uint32)
    coarse[:, :, :nodes] = (bits + (1 << 14)) >> 15
    return coarse


@functools.cache
def noise_for(draws: int, ants: int, nodes: int) -> Noise:
    exact = draw_exponentials(draws, ants, nodes)
    return Noise(exact, coarsen(exact))
