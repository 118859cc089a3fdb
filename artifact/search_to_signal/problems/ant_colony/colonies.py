"""The colonies of CVRP and OP, and what the host does to a matrix before its ants see it."""

import contextlib
import functools
import hashlib
import json
import math
import os
import tempfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.problems.ant_colony import kernels
from search_to_signal.problems.base import Array, InfeasibleAnswerError, ScorePath

# Noise on disk, in the user's cache directory. A file that is not what was written there is ignored.


@dataclass(frozen=True)
class Noise:
    """Noise of one colony shape.

    exact (draws, ants, nodes) float64; coarse (draws, ants, width) uint16, the upper bits of 1 / exact.
    """

    exact: NDArray[np.float64]
    coarse: NDArray[np.uint16]


def directory() -> Path:
    """Where noise is kept: below XDG_CACHE_HOME, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache"
    return Path(base) / "search-to-signal" / "noise"


def load(name: str) -> Noise | None:
    """Return the stored noise as read-only maps, or None when it is missing or not what was written."""
    try:
        note = json.loads((directory() / f"{name}.json").read_text())
        exact, coarse = _mapped(note["exact"]), _mapped(note["coarse"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if exact is None or coarse is None:
        return None
    return Noise(exact, coarse)


def save(name: str, noise: Noise) -> None:
    """Store the noise; where the directory cannot be written, do nothing.

    Arrays are named by their content and the note goes last, each by an atomic rename, so that other
    processes see all of it or nothing.
    """
    with contextlib.suppress(OSError):
        directory().mkdir(parents=True, exist_ok=True)
        note = {"exact": _keep(noise.exact), "coarse": _keep(noise.coarse)}
        _replace(f"{name}.json", lambda path: path.write_text(json.dumps(note)))


def _sha256(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _keep(array: Array) -> str:
    sha256 = _sha256(array)
    _replace(f"{sha256}.npy", lambda path: np.save(path, array))
    return sha256


def _replace(name: str, write: Any) -> None:
    handle, draft = tempfile.mkstemp(suffix=Path(name).suffix, dir=directory())
    os.close(handle)
    try:
        write(Path(draft))
        os.replace(draft, directory() / name)
    finally:
        Path(draft).unlink(missing_ok=True)


def _mapped(sha256: str) -> Array | None:
    array = np.load(directory() / f"{sha256}.npy", mmap_mode="r", allow_pickle=False)
    return array.view(np.ndarray) if _sha256(array) == sha256 else None


# The noise that decides every draw of the ants: drawn once, then kept on disk.
#
# Every instance starts its own generator from the same seed, so the k-th draw of any colony of that many
# ants and nodes sees the same block of exponentials, whatever the instance and the heuristic.

GENERATOR_SEED = 42
LANE = 64
# The multiplicative congruential generator of 31 bits by which torch 2.5.1 draws exponentials, MKL's MCG31.
_MODULUS, _FACTOR = 2**31 - 1, 1132489760


@dataclass(frozen=True)
class Colony:
    """The shape of the noise: how many draws a run may need, of how many ants over how many nodes."""

    draws: int
    ants: int
    nodes: int


@functools.cache  # a pure function of its argument; the arrays are read-only
def noise_for(colony: Colony) -> Noise:
    """Return the noise of a colony from memory, from the user's cache, or drawn now."""
    name = f"numbers-{colony.draws}x{colony.ants}x{colony.nodes}"
    stored = load(name)
    if stored is not None:
        return stored
    drawn = draw_noise(colony)
    save(name, drawn)
    return drawn


def draw_noise(colony: Colony) -> Noise:
    """Draw the noise, read-only."""
    exact = draw_exponentials(colony)
    noise = Noise(exact, coarsen(exact))
    noise.exact.setflags(write=False)
    noise.coarse.setflags(write=False)
    return noise


def draw_exponentials(colony: Colony) -> NDArray[np.float64]:
    """Draw the (draws, ants, nodes) blocks that torch 2.5.1's multinomial draws, on any torch and processor.

    Torch takes each block's seed from its Mersenne Twister, and has MKL make minus logarithms of uniform
    numbers. MKL's logarithm errs by up to 4e-10 of its value, otherwise on each kind of processor; here it is
    the exact one, rounded. No recorded or tested score depends on the difference.
    """
    size = colony.ants * colony.nodes
    # Of each 64-bit number MKL takes the lower half, which the Twister draws last.
    seeds = np.random.RandomState(GENERATOR_SEED).randint(0, 1 << 32, 2 * colony.draws, dtype=np.uint32)[1::2]
    blocks = np.empty((colony.draws, size))
    for block, seed in zip(blocks, seeds.tolist(), strict=True):
        states = np.full(size, seed % _MODULUS or 1)
        drawn = 1
        while drawn < size:  # the next states are those before, so many steps on
            more = min(drawn, size - drawn)
            states[drawn : drawn + more] = states[:more] * pow(_FACTOR, drawn, _MODULUS) % _MODULUS
            drawn += more
        # Wider than double, so that rounding does not depend on which logarithm numpy has for a processor.
        block[...] = -np.log((states / _MODULUS).astype(np.longdouble))
    return blocks.reshape(colony.draws, colony.ants, colony.nodes)


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


FLOOR = 1e-9


def floored(matrix: Array) -> NDArray[np.float64]:
    """Add 1e-9 and raise what is below 1e-9 to it, in the precision of the matrix, then widen to float64.

    NaN and inf stay. In half precision 1e-9 is zero, so that zeros stay zero.
    """
    with np.errstate(all="ignore"):
        lifted = np.asarray(matrix + FLOOR)
        lifted[lifted < FLOOR] = FLOOR
    return np.array(lifted, dtype=np.float64, order="C")


DECAY = 0.9
PHEROMONE_FLOOR = 1e-10
LARGEST_LOAD = 2.0**20


def score_path(demands: Array, capacity: float) -> ScorePath:
    """Say which colony runs: the compiled one takes whole loads, as it keeps them in single precision."""
    loads = np.append(demands, capacity)
    whole = bool((loads == np.floor(loads)).all()) and loads.min() >= 0 and loads.max() <= LARGEST_LOAD
    return "fast" if whole else "fallback"


def best_cost(
    distance: Array, demands: Array, capacity: float, matrix: Array, ants: int, iterations: int
) -> float:
    """Return the cost of the best path; InfeasibleAnswerError when the matrix gives no probabilities."""
    weights, rates = floored(matrix), (iterations, DECAY, PHEROMONE_FLOOR)
    # A path visits every customer once and the depot at most as often.
    noise = noise_for(Colony(iterations * 2 * (len(demands) - 1), ants, len(demands)))
    if score_path(demands, capacity) == "fast":
        loads = demands.astype(np.float32)
        cost = kernels.route(np.array(distance), loads, capacity, weights, noise.exact, noise.coarse, *rates)
    else:
        cost = route_by_steps(distance, demands, capacity, weights, noise.exact, *rates)
    if math.isnan(cost):
        raise InfeasibleAnswerError("the matrix gives an ant no probabilities: not finite, or all zero")
    return cost


def best_prize(
    prize: Array, distance: Array, maxlen: float, matrix: Array, ants: int, iterations: int
) -> float:
    """Return the largest prize sum of a path; weights that are not finite count as zero.

    Raises InfeasibleAnswerError when an ant that could go on finds no positive weight: there the host's torch
    refuses to write its uniform fallback, of single precision, into double precision.
    """
    weights, rates = floored(matrix), (iterations, DECAY)
    # A path visits every node at most once; a further node is where finished ants stay.
    noise = noise_for(Colony(iterations * len(prize), ants, len(prize) + 1))
    collected = kernels.orient(
        np.array(prize), np.array(distance), maxlen, weights, noise.exact, noise.coarse, *rates
    )
    if math.isnan(collected):
        raise InfeasibleAnswerError("the matrix gives an ant no probabilities: nothing it may go to weighs")
    return collected


Reals = NDArray[np.float64]
Ints = NDArray[np.int64]


@np.errstate(over="ignore")  # a weight may overflow; what is not finite is refused
def route_by_steps(
    distance: Reals,
    demand: Reals,
    capacity: float,
    heuristic: Reals,
    noise: Reals,
    iterations: int,
    decay: float,
    floor: float,
) -> float:
    """Cost of the best path, as ``kernels.route``; NaN when an ant has no probabilities.

    For loads that the kernels' single precision could round; much slower.
    """
    pheromone, lowest = np.ones_like(heuristic), np.inf
    draws = count()
    for _ in range(iterations):
        paths = _paths(pheromone * heuristic, demand, capacity, noise, draws)
        if paths is None:
            return float("nan")
        edges = distance[paths[:-1], paths[1:]]
        costs = [kernels.sum_steps(edges, len(edges), ant) for ant in range(edges.shape[1])]
        lowest = min(lowest, *costs)
        pheromone *= decay
        # Ant by ant: a repeated edge of one path counts once.
        for path, cost in zip(paths.T, costs, strict=True):
            pheromone[path[:-1], path[1:]] += 1.0 / cost
        pheromone[pheromone < floor] = floor
    return lowest


def _paths(weight: Reals, demand: Reals, capacity: float, noise: Reals, draws: "count[int]") -> Ints | None:
    """The nodes (steps, ants) that ants go to from the depot and back; None without probabilities."""
    if not np.isfinite(weight).all():
        return None
    ants = noise.shape[1]
    here, ant = np.zeros(ants, np.int64), np.arange(ants)
    room, closed = np.full(ants, capacity), np.zeros((ants, len(demand)), bool)
    path = [here]
    while True:
        closed[ant, here] = True
        left = (~closed[:, 1:]).any(axis=1)
        if not (left.any() or here.any()):
            return np.stack(path)
        closed[:, 0] = (here == 0) & left
        allowed = np.where(closed | (demand > room[:, None]), 0.0, weight[here])
        if (allowed.sum(axis=1) == 0).any():
            return None
        here = (allowed / noise[next(draws)]).argmax(axis=1)
        room = np.where(here == 0, capacity, room - demand[here])
        path.append(here)
