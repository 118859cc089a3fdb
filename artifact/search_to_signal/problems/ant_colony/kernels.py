"""The compiled loops of both ant colonies. They give torch's bits without torch.

One draw of an ant is the first maximum of weight / noise over the nodes it may go to. Dividing all of
them is exact but reads 8 bytes of noise per node, and memory is what such a loop waits for. So every
draw has two stages. The first multiplies single-precision weights by a 16-bit rounding of 1 / noise,
all nodes at once. The relative error of a product is below 2**-9 (16-bit rounding) plus 2**-22 (three
single-precision roundings), so two products that differ by a factor of ``1 - 2**-7`` rank as the exact
quotients do. The second stage divides, in double precision, for the few draws with several products
that near, or with a largest product so small that single precision may have lost a rival.

All kernels stand in one file because numba's cache of a kernel does not see changes in other files.
Sums are added in the order of torch.sum, which depends on the memory layout; see the ``sum_`` functions.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile for speed without changing a bit: no fast-math, no exceptions on division by zero.

    The machine code is cached next to the source or in the user's cache. numba raises RuntimeError when
    it can write to neither; then every process compiles for itself.
    """
    options = {"nogil": True, "error_model": "numpy"}
    try:
        kernel: F = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        kernel = numba.njit(**options)(function)
    return kernel


Reals = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Bits = NDArray[np.int32]
Coarse = NDArray[np.uint16]
Scratch = tuple[Bits, Singles, Singles, Bits]

RIVAL = 1 << 16
NEAR = np.float32(1.0 - 2.0**-7)
TINY = np.float32(1e-18)
SMALLEST, LARGEST = 1e-250, 1e250
CASCADE = 16
BLOCK = 16
LANES = 4


@compiled
def sum_column(values: Reals, start: int, stride: int, length: int, column: int) -> float:
    """Sum values[start + i * stride, column], i < length < 4096, in torch's cascade of sixteens."""
    tail, blocks, groups = 0.0, 0.0, 0.0
    whole = length // CASCADE * CASCADE
    for i in range(0, whole, CASCADE):
        block = 0.0
        for j in range(i, i + CASCADE):
            block += values[start + j * stride, column]
        blocks += block
        if (i + CASCADE) % CASCADE**2 == 0:
            groups += blocks
            blocks = 0.0
    for j in range(whole, length):
        tail += values[start + j * stride, column]
    return (tail + blocks) + groups


@compiled
def sum_steps(values: Reals, steps: int, column: int) -> float:
    """Sum values[:steps, column] in the order of torch.sum over rows of strides (1, columns)."""
    if column < values.shape[1] // BLOCK * BLOCK:
        return sum_column(values, 0, 1, steps, column)
    length = steps // LANES
    first = sum_column(values, 0, LANES, length, column)
    for rest in range(LANES * length, steps):
        first += values[rest, column]
    second = sum_column(values, 1, LANES, length, column)
    third = sum_column(values, 2, LANES, length, column)
    fourth = sum_column(values, 3, LANES, length, column)
    return ((first + second) + third) + fourth


@compiled
def sum_row(values: Reals) -> float:
    """Sum a contiguous vector in the order of torch.sum: LANES columns of four, then the rest."""
    width = 4
    groups = len(values) // width
    table = values[: groups * width].reshape(groups, width)
    total = 0.0
    for rest in range(groups * width, len(values)):
        total += values[rest]
    for column in range(width):
        length = groups // LANES
        first = sum_column(table, 0, LANES, length, column)
        for rest in range(LANES * length, groups):
            first += table[rest, column]
        for lane in range(1, LANES):
            first += sum_column(table, lane, LANES, length, column)
        total += first
    return total


@compiled
def scale_rows(weight: Reals, single: Singles) -> None:
    """Write weight (n, m), each row divided by its maximum, into single (n, width) of float32.

    A row whose quotients could leave the range of float64, and so tie at infinity, is written as zeros:
    stage one then finds nothing, and stage two divides.
    """
    for i in range(weight.shape[0]):
        largest = 0.0
        for j in range(weight.shape[1]):
            largest = weight[i, j] if weight[i, j] > largest else largest
        factor = 1.0 if SMALLEST < largest < LARGEST else 0.0
        divisor = largest if factor > 0.0 else 1.0
        for j in range(weight.shape[1]):
            single[i, j] = factor * (weight[i, j] / divisor)


@compiled
def rate(
    single: Singles,
    coarse: Coarse,
    draw: int,
    row: Ints,
    need: Singles,
    room: Singles,
    lifted: Bits,
    rating: Singles,
) -> None:
    """Stage one: rate every node; zero where need[ant, node] exceeds room[ant]."""
    ants, width = rating.shape
    inverse = lifted.view(np.float32)
    for ant in range(ants):
        start, limit = row[ant], room[ant]
        for j in range(width):
            lifted[ant, j] = np.int32(coarse[draw, ant, j]) << np.int32(15)
        for j in range(width):
            product = single[start, j] * inverse[ant, j]
            rating[ant, j] = product if need[ant, j] <= limit else np.float32(0.0)


@compiled
def find_largest(rating: Singles, largest: Singles) -> None:
    """Write the largest rating of every ant; not negative, so that integers order as the floats do."""
    ants, width = rating.shape
    bits, out = rating.view(np.int32), largest.view(np.int32)
    for ant in range(ants):
        top = np.int32(0)
        for j in range(width):
            top = bits[ant, j] if bits[ant, j] > top else top
        out[ant] = top


@compiled
def find_rivals(rating: Singles, largest: Singles, rivals: Bits) -> None:
    """Write, for every ant, RIVAL times the number of near-largest ratings plus the sum of their columns."""
    ants, width = rating.shape
    for ant in range(ants):
        near = largest[ant] * NEAR
        packed = np.int32(0)
        for j in range(width):
            packed += np.int32(RIVAL + j) if rating[ant, j] >= near else np.int32(0)
        rivals[ant] = packed


@compiled
def divide(weight: Reals, start: int, noise: Reals, draw: int, ant: int, need: Singles, room: Singles) -> int:
    """Stage two: the first maximum of weight / noise over the allowed nodes; -1 if all weigh nothing."""
    best, chosen = 0.0, -1
    for j in range(weight.shape[1]):
        if need[ant, j] <= room[ant]:
            ratio = weight[start, j] / noise[draw, ant, j]
            if ratio > best:
                best, chosen = ratio, j
    return chosen


@compiled
def choose(
    weight: Reals,
    single: Singles,
    noise: Reals,
    coarse: Coarse,
    draw: int,
    row: Ints,
    need: Singles,
    room: Singles,
    scratch: Scratch,
    choice: Ints,
) -> None:
    """Draw the next node of every ant; -1 for an ant all of whose nodes weigh nothing."""
    lifted, rating, largest, rivals = scratch
    rate(single, coarse, draw, row, need, room, lifted, rating)
    find_largest(rating, largest)
    find_rivals(rating, largest, rivals)
    for ant in range(len(choice)):
        if rivals[ant] < 2 * RIVAL and largest[ant] > TINY:
            choice[ant] = rivals[ant] - RIVAL
        else:
            choice[ant] = divide(weight, row[ant], noise, draw, ant, need, room)


@compiled
def new_scratch(ants: int, width: int) -> Scratch:
    """Working arrays of ``choose``."""
    return (
        np.empty((ants, width), np.int32),
        np.empty((ants, width), np.float32),
        np.empty(ants, np.float32),
        np.empty(ants, np.int32),
    )


@compiled
def multiply(pheromone: Reals, heuristic: Reals, weight: Reals) -> bool:
    """Write pheromone * heuristic into weight; returns whether all products are finite."""
    total = 0.0
    for i in range(weight.shape[0]):
        for j in range(weight.shape[1]):
            weight[i, j] = pheromone[i, j] * heuristic[i, j]
            total += weight[i, j] * 0.0
    return total == 0.0


@compiled
def fade(pheromone: Reals, decay: float) -> None:
    """Multiply every pheromone by the decay."""
    for i in range(pheromone.shape[0]):
        for j in range(pheromone.shape[1]):
            pheromone[i, j] *= decay


@compiled
def send_out(demand: Singles, capacity: float, need: Singles, room: Singles, row: Ints, left: Ints) -> None:
    """Put every ant at the depot with an empty load; nodes whose need exceeds all room are closed."""
    for ant in range(len(row)):
        row[ant], room[ant], left[ant] = 0, capacity, len(demand) - 1
        for j in range(len(demand)):
            need[ant, j] = demand[j]
        need[ant, 0] = np.inf


@compiled
def move_on(
    ant: int, node: int, demand: Singles, capacity: float, need: Singles, room: Singles, left: Ints
) -> bool:
    """Take an ant to a node; returns whether it is home for good."""
    if node == 0:
        room[ant] = capacity
        need[ant, 0] = np.inf if left[ant] > 0 else 0.0
        return bool(left[ant] == 0)
    room[ant] -= demand[node]
    left[ant] -= 1
    need[ant, node] = np.inf
    need[ant, 0] = 0.0
    return False


@compiled
def build_routes(
    weight: Reals,
    noise: Reals,
    coarse: Coarse,
    draw: int,
    demand: Singles,
    capacity: float,
    state: Any,
    paths: Ints,
) -> int:
    """Build one path per ant into paths (steps, ants); returns its length, or -1 when a draw fails."""
    single, need, room, row, left, choice, scratch = state
    scale_rows(weight, single)
    send_out(demand, capacity, need, room, row, left)
    length, home = 1, 0
    while home < len(row):
        choose(weight, single, noise, coarse, draw + length - 1, row, need, room, scratch, choice)
        home = 0
        for ant in range(len(row)):
            if choice[ant] < 0:
                return -1
            home += move_on(ant, choice[ant], demand, capacity, need, room, left)
            row[ant] = choice[ant]
            paths[length, ant] = choice[ant]
        length += 1
    return length


@compiled
def lay_along(pheromone: Reals, paths: Ints, length: int, ant: int, amount: float) -> None:
    """Add to every edge of one path; the repeated edge, waiting at the depot, counts once."""
    waited = False
    for step in range(length - 1):
        i, j = paths[step, ant], paths[step + 1, ant]
        if i == j:
            if waited:
                continue
            waited = True
        pheromone[i, j] += amount


@compiled
def route(
    distance: Reals,
    demand: Singles,
    capacity: float,
    heuristic: Reals,
    noise: Reals,
    coarse: Coarse,
    iterations: int,
    decay: float,
    floor: float,
) -> float:
    """Run the routing colony: cost of the best path, NaN when an ant has no probabilities.

    distance, heuristic (n, n) float64; demand (n,) float32, whole numbers; noise (draws, ants, n) float64;
    coarse (draws, ants, width >= n) uint16. The draws must suffice for 2 (n - 1) per iteration.
    """
    n, ants, width = len(demand), coarse.shape[1], coarse.shape[2]
    pheromone, weight = np.ones((n, n)), np.empty((n, n))
    paths, edges = np.zeros((2 * n, ants), np.int64), np.empty((2 * n, ants))
    state = (
        np.zeros((n, width), np.float32),
        np.full((ants, width), np.inf, np.float32),
        np.empty(ants, np.float32),
        np.empty(ants, np.int64),
        np.empty(ants, np.int64),
        np.empty(ants, np.int64),
        new_scratch(ants, width),
    )
    lowest, draw = np.inf, 0
    for _ in range(iterations):
        if not multiply(pheromone, heuristic, weight):
            return np.nan
        length = build_routes(weight, noise, coarse, draw, demand, capacity, state, paths)
        if length < 0:
            return np.nan
        draw += length - 1
        fade(pheromone, decay)
        for step in range(length - 1):
            for ant in range(ants):
                edges[step, ant] = distance[paths[step, ant], paths[step + 1, ant]]
        for ant in range(ants):
            cost = sum_steps(edges, length - 1, ant)
            lowest = min(lowest, cost)
            lay_along(pheromone, paths, length, ant, 1.0 / cost)
        for i in range(n):
            for j in range(n):
                pheromone[i, j] = max(pheromone[i, j], floor)
    return lowest


@compiled
def keep_finite(pheromone: Reals, heuristic: Reals, weight: Reals) -> None:
    """Write pheromone * heuristic into weight, zero where that is not finite."""
    for i in range(weight.shape[0]):
        for j in range(weight.shape[1]):
            product = pheromone[i, j] * heuristic[i, j]
            weight[i, j] = product if np.isfinite(product) else 0.0


@compiled
def close_far(ant: int, node: int, distance: Reals, limit: float, travelled: Singles, need: Singles) -> int:
    """Close every node from which this ant could no longer be back in time; returns how many stay open."""
    opened = 0
    so_far = np.float64(travelled[ant])
    for j in range(distance.shape[0]):
        if so_far + distance[node, j] + distance[j, 0] > limit:
            need[ant, j] = np.inf
        opened += need[ant, j] <= 0.0
    return opened


@compiled
def build_paths(
    weight: Reals,
    noise: Reals,
    coarse: Coarse,
    draw: int,
    distance: Reals,
    limit: float,
    state: Any,
    paths: Ints,
) -> int:
    """Build one path per ant into paths (steps, ants); the node after the last means that it is over.

    Returns the number of rows, or -1 when nothing that an ant may go to weighs anything. What an ant has
    travelled is kept in single precision.
    """
    single, need, room, row, opened, travelled, choice, scratch = state
    n, ants = distance.shape[0], len(row)
    scale_rows(weight, single)
    for ant in range(ants):
        need[ant, :n], need[ant, 0], row[ant], travelled[ant] = 0.0, np.inf, 0, 0.0
        opened[ant] = close_far(ant, 0, distance, limit, travelled, need)
    length = 1
    while opened.max() > 0:
        choose(weight, single, noise, coarse, draw + length - 1, row, need, room, scratch, choice)
        for ant in range(ants):
            node = choice[ant]
            if opened[ant] == 0:
                paths[length, ant] = n
                continue
            if node < 0:
                return -1
            travelled[ant] = np.float32(np.float64(travelled[ant]) + distance[row[ant], node])
            need[ant, node] = np.inf
            opened[ant] = close_far(ant, node, distance, limit, travelled, need)
            row[ant] = node
            paths[length, ant] = node
        length += 1
    return length


@compiled
def orient(
    prize: Reals,
    distance: Reals,
    limit: float,
    heuristic: Reals,
    noise: Reals,
    coarse: Coarse,
    iterations: int,
    decay: float,
) -> float:
    """Run the orienteering colony: largest prize sum of a path, NaN when an ant has no probabilities.

    prize (n,), distance, heuristic (n, n) float64; noise (draws, ants, n + 1) float64; coarse (draws, ants,
    width > n) uint16. The draws must suffice for n per iteration.
    """
    n, ants, width = len(prize), coarse.shape[1], coarse.shape[2]
    pheromone, weight = np.ones((n, n)), np.empty((n, n))
    paths, prizes = np.zeros((n + 1, ants), np.int64), np.empty((n + 1, ants))
    state = (
        np.zeros((n, width), np.float32),
        np.full((ants, width), np.inf, np.float32),
        np.zeros(ants, np.float32),
        np.empty(ants, np.int64),
        np.empty(ants, np.int64),
        np.empty(ants, np.float32),
        np.empty(ants, np.int64),
        new_scratch(ants, width),
    )
    total, highest, draw = sum_row(prize), -np.inf, 0
    for _ in range(iterations):
        keep_finite(pheromone, heuristic, weight)
        length = build_paths(weight, noise, coarse, draw, distance, limit, state, paths)
        if length < 0:
            return np.nan
        draw += length - 1
        fade(pheromone, decay)
        for step in range(length):
            for ant in range(ants):
                prizes[step, ant] = prize[paths[step, ant]] if paths[step, ant] < n else 0.0
        for ant in range(ants):
            collected = sum_steps(prizes, length, ant)
            highest = max(highest, collected)
            for step in range(length - 1):
                if paths[step + 1, ant] == n:
                    break
                pheromone[paths[step, ant], paths[step + 1, ant]] += collected / total
    return highest
