"""Does the installed torch choose and sum as the kernels do? Tried when noise is drawn; imports torch."""

import numpy as np
import torch
from numpy.typing import NDArray

from search_to_signal.problems.ant_colony import kernels

TRIED_DRAWS = 32
SMALLEST, LARGEST = 1e-12, 1e3


def kernels_agree(exact: NDArray[np.float64], seed: int = 42) -> bool:
    """Whether torch's multinomial is the argmax of weight / noise, and its sums have the kernels' order.

    Noise outside (1e-12, 1e3) would leave the range in which the kernels' first stage is sound.
    """
    in_range = bool(((exact > SMALLEST) & (exact < LARGEST)).all())
    return in_range and _draws_agree(exact, seed) and _sums_agree(*exact.shape[1:])


def _draws_agree(exact: NDArray[np.float64], seed: int) -> bool:
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.Generator(np.random.PCG64(0))
    for block in exact[:TRIED_DRAWS]:
        weight = rng.random(block.shape)
        drawn = torch.multinomial(torch.from_numpy(weight), 1, generator=generator).squeeze(1).numpy()
        if not np.array_equal(drawn, (weight / block).argmax(axis=1)):
            return False
    return True


def _sums_agree(ants: int, nodes: int) -> bool:
    rng = np.random.Generator(np.random.PCG64(1))
    for steps in range(1, 2 * nodes + 1):
        values = rng.random((steps, ants))
        by_ant = torch.from_numpy(values).t()
        ours = [kernels.sum_steps(values, steps, ant) for ant in range(ants)]
        if by_ant.sum(dim=1).tolist() != ours:
            return False
        row = rng.random(steps)
        if float(torch.from_numpy(row).sum()) != kernels.sum_row(row):
            return False
    return True
