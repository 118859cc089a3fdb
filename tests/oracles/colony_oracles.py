"""Literal ant colonies on torch operations: masks, one multinomial per step, one loop over the ants.

They are slow on purpose. Nothing here is shared with the package, so that equal bits mean something.
"""

from typing import Any

import torch

torch.set_num_threads(1)  # changes no bit, and spares a loaded machine the spinning threads

Array = Any
SEED = 42
DECAY = 0.9
PHEROMONE_FLOOR = 1e-10


def floor_matrix(matrix: Array) -> Any:
    """Add 1e-9, raise entries below 1e-9 to it, keep the matrix's own precision."""
    raised = matrix + 1e-9
    raised[raised < 1e-9] = 1e-9
    return torch.tensor(raised)


def cvrp_best_cost(
    distance: Array, demands: Array, capacity: float, matrix: Array, ants: int = 30, iterations: int = 100
) -> float:
    """Cost of the best path; torch raises RuntimeError when a draw has no probabilities."""
    colony = _Routing(distance, demands, capacity, floor_matrix(matrix), ants)
    return min(colony.iterate() for _ in range(iterations))


def op_best_prize(
    prize: Array, distance: Array, limit: float, matrix: Array, ants: int = 20, iterations: int = 50
) -> float:
    """Largest prize sum of a path back in time; RuntimeError for an ant's row without weight."""
    colony = _Orienteering(prize, distance, limit, floor_matrix(matrix), ants)
    return max(colony.iterate() for _ in range(iterations))


class _Routing:
    def __init__(self, distance: Array, demands: Array, capacity: float, heuristic: Any, ants: int) -> None:
        self.distance = torch.tensor(distance)
        self.demands = torch.tensor(demands)
        self.capacity = capacity
        self.heuristic = heuristic
        self.ants = ants
        self.pheromone = torch.ones_like(self.distance)
        self.generator = torch.Generator().manual_seed(SEED)

    def iterate(self) -> float:
        paths = self.build_paths()
        costs = self.costs(paths)
        self.update_pheromone(paths, costs)
        return float(costs.min())

    def build_paths(self) -> Any:
        nodes = len(self.demands)
        current = torch.zeros(self.ants, dtype=torch.long)
        unvisited = torch.ones(self.ants, nodes)
        used = torch.zeros(self.ants, dtype=torch.float64)
        steps = [current]
        visit, fits, used = self.masks(current, unvisited, used)
        while not self.finished(current, unvisited):
            weight = self.pheromone[current] * self.heuristic[current] * visit * fits
            current = torch.multinomial(weight, 1, generator=self.generator).squeeze(1)
            steps.append(current)
            visit, fits, used = self.masks(current, unvisited, used)
        return torch.stack(steps)

    def finished(self, current: Any, unvisited: Any) -> bool:
        return bool((unvisited[:, 1:] == 0).all() and (current == 0).all())

    def masks(self, current: Any, unvisited: Any, used: Any) -> Any:
        """Where the ants may go: unvisited customers that fit, and the depot from elsewhere or at the end."""
        ant = torch.arange(self.ants)
        unvisited[ant, current] = 0
        visit = unvisited.clone()
        customers_left = (unvisited[:, 1:] != 0).any(dim=1)
        visit[:, 0] = torch.where((current == 0) & customers_left, 0.0, 1.0)
        used[current == 0] = 0.0
        used = used + self.demands[current]
        fits = torch.ones(self.ants, len(self.demands))
        room = (self.capacity - used).unsqueeze(1).repeat(1, len(self.demands))
        fits[self.demands.unsqueeze(0).repeat(self.ants, 1) > room] = 0
        return visit, fits, used

    def costs(self, paths: Any) -> Any:
        by_ant = paths.permute(1, 0)
        edges = self.distance[by_ant[:, :-1], torch.roll(by_ant, -1, dims=1)[:, :-1]]
        return torch.sum(edges, dim=1)

    def update_pheromone(self, paths: Any, costs: Any) -> None:
        self.pheromone = self.pheromone * DECAY
        for ant in range(self.ants):
            path = paths[:, ant]
            self.pheromone[path[:-1], torch.roll(path, -1)[:-1]] += 1.0 / costs[ant]
        self.pheromone[self.pheromone < PHEROMONE_FLOOR] = PHEROMONE_FLOOR


class _Orienteering:
    def __init__(self, prize: Array, distance: Array, limit: float, heuristic: Any, ants: int) -> None:
        self.nodes = len(prize)
        self.prize = torch.cat([torch.tensor(prize), torch.zeros(1, dtype=torch.float64)])
        self.distance = self.with_dummy(torch.tensor(distance), 0.0)
        self.heuristic = self.with_dummy(heuristic, 1.0)
        self.limit = limit
        self.ants = ants
        self.pheromone = torch.ones_like(self.distance)
        self.generator = torch.Generator().manual_seed(SEED)

    def with_dummy(self, matrix: Any, value: float) -> Any:
        """Add a last node, reachable from everywhere, where finished ants stay."""
        out = torch.full((self.nodes + 1, self.nodes + 1), value, dtype=matrix.dtype)
        out[:-1, :-1] = matrix
        return out

    def iterate(self) -> float:
        paths = self.build_paths()
        prizes = torch.sum(self.prize[paths.permute(1, 0)], dim=1)
        self.update_pheromone(paths, prizes)
        return float(prizes.max())

    def build_paths(self) -> Any:
        travelled = torch.zeros(self.ants)
        current = torch.zeros(self.ants, dtype=torch.long)
        mask = torch.ones(self.ants, self.nodes + 1)
        mask[:, 0] = 0
        mask = self.close(travelled, current, mask)
        steps = [current]
        while not (mask[:, :-1] == 0).all():
            chosen = torch.multinomial(self.weights(current, mask), 1, generator=self.generator).squeeze(1)
            travelled += self.distance[current, chosen]
            current = chosen
            steps.append(current)
            mask[torch.arange(self.ants), current] = 0
            mask = self.close(travelled, current, mask)
        return torch.stack(steps)

    def weights(self, current: Any, mask: Any) -> Any:
        weight = self.pheromone[current] * self.heuristic[current] * mask
        weight = torch.where(torch.isfinite(weight), weight, torch.zeros_like(weight))
        empty = weight.sum(dim=1) == 0
        if bool(empty.any()):
            weight[empty] = mask[empty]  # torch refuses: one is single, the other double precision
        return weight

    def close(self, travelled: Any, current: Any, mask: Any) -> Any:
        """Close nodes that are too far for a timely return; open the dummy for ants with no other."""
        mask = mask.clone()
        under_way = (current != self.nodes).unsqueeze(1)
        way = travelled.to(torch.float64).unsqueeze(1) + self.distance[current, :-1] + self.distance[:-1, 0]
        mask[:, :-1][under_way & (way > self.limit)] = 0
        mask[:, -1] = (mask[:, :-1] == 0).all(dim=1)
        return mask

    def update_pheromone(self, paths: Any, prizes: Any) -> None:
        total = self.prize.sum()
        self.pheromone = self.pheromone * DECAY
        for ant in range(self.ants):
            path = paths[:, ant]
            self.pheromone[path[:-1], torch.roll(path, -1)[:-1]] += prizes[ant] / total
