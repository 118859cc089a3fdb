"""Both colonies on torch operations: slower, and exact whatever torch's noise and summation order are.

Used where the kernels cannot promise torch's bits. Imports torch.
"""

import numpy as np
import torch
from numpy.typing import NDArray

Tensor = torch.Tensor
Reals = NDArray[np.float64]


def route(
    distance: Reals,
    demand: Reals,
    capacity: float,
    heuristic: Reals,
    ants: int,
    iterations: int,
    decay: float,
    floor: float,
    seed: int,
) -> float:
    """Cost of the best path of the routing colony; NaN when an ant has no probabilities."""
    generator = torch.Generator().manual_seed(seed)
    edges, pheromone = torch.tensor(distance), torch.ones(heuristic.shape, dtype=torch.float64)
    lowest = np.inf
    for _ in range(iterations):
        paths = _routes(pheromone * torch.tensor(heuristic), torch.tensor(demand), capacity, ants, generator)
        if paths is None:
            return float("nan")
        by_ant = paths.t()
        costs = edges[by_ant[:, :-1], by_ant[:, 1:]].sum(dim=1)
        lowest = min(lowest, float(costs.min()))
        pheromone = _laid(pheromone * decay, paths, 1.0 / costs)
        pheromone[pheromone < floor] = floor
    return lowest


def orient(
    prize: Reals,
    distance: Reals,
    limit: float,
    heuristic: Reals,
    ants: int,
    iterations: int,
    decay: float,
    seed: int,
) -> float:
    """Largest prize sum of a path of the orienteering colony; NaN when an ant has no probabilities."""
    generator = torch.Generator().manual_seed(seed)
    prizes, way, bias = _padded(prize), _padded(distance), _padded(heuristic)
    pheromone = torch.ones(bias.shape, dtype=torch.float64)
    highest = -np.inf
    for _ in range(iterations):
        weight = pheromone * bias
        weight[~torch.isfinite(weight)] = 0.0
        paths = _paths(weight, way, limit, ants, generator)
        if paths is None:
            return float("nan")
        collected = prizes[paths.t()].sum(dim=1)
        highest = max(highest, float(collected.max()))
        pheromone = _laid(pheromone * decay, paths, collected / prizes.sum())
    return float(highest)


def _routes(
    weight: Tensor, demand: Tensor, capacity: float, ants: int, generator: torch.Generator
) -> Tensor | None:
    if not bool(torch.isfinite(weight).all()):
        return None
    here, ant = torch.zeros(ants, dtype=torch.long), torch.arange(ants)
    room = torch.full((ants,), capacity, dtype=torch.float64)
    closed = torch.zeros(ants, len(demand), dtype=torch.bool)
    path = [here]
    while True:
        closed[ant, here] = True
        left = (~closed[:, 1:]).any(dim=1)
        if not bool(left.any() or here.any()):
            return torch.stack(path)
        closed[:, 0] = (here == 0) & left
        allowed = weight[here].masked_fill(closed | (demand > room[:, None]), 0.0)
        if bool((allowed.sum(dim=1) == 0).any()):
            return None
        here = torch.multinomial(allowed, 1, generator=generator).squeeze(1)
        room = torch.where(here == 0, capacity, room - demand[here])
        path.append(here)


def _paths(weight: Tensor, way: Tensor, limit: float, ants: int, generator: torch.Generator) -> Tensor | None:
    end = len(way) - 1
    here, ant = torch.zeros(ants, dtype=torch.long), torch.arange(ants)
    travelled = torch.zeros(ants, dtype=torch.float32)
    closed = torch.zeros(ants, len(way), dtype=torch.bool)
    path = [here]
    while True:
        closed[ant, here] = True
        closed |= (travelled.double()[:, None] + way[here]) + way[:, 0] > limit
        over = closed[:, :end].all(dim=1)
        if bool(over.all()):
            return torch.stack(path)
        closed[:, end] = ~over
        allowed = weight[here].masked_fill(closed, 0.0)
        allowed[over, end] = 1.0
        if bool((allowed.sum(dim=1) == 0).any()):
            return None
        here = torch.multinomial(allowed, 1, generator=generator).squeeze(1)
        travelled += way[path[-1], here]
        path.append(here)


def _laid(pheromone: Tensor, paths: Tensor, amounts: Tensor) -> Tensor:
    """Add each ant's amount to its edges, ant by ant; a repeated edge of one path counts once."""
    for path, amount in zip(paths.t(), amounts, strict=True):
        pheromone[path[:-1], path[1:]] += amount
    return pheromone


def _padded(values: Reals) -> Tensor:
    """Append the node where finished ants stay: no prize, no distance, no weight."""
    return torch.tensor(np.pad(values, (0, 1)))
