"""One instance with the tours of the seed and of the best heuristic, for a picture."""

from pathlib import Path

import msgspec

from search_to_signal.records.files import read_json, write_atomically

TOURS = "tours.json"


class Tour(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The visiting order of all nodes, node 0 first, by one heuristic, and its score; higher is better."""

    heuristic: str
    order: tuple[int, ...]
    score: float


class Tours(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An instance of a split, (x, y) of its nodes in the unit square, and two tours; ``run`` has the best."""

    problem: str
    split: str
    instance: int
    run: str
    coordinates: tuple[tuple[float, float], ...]
    seed: Tour
    best: Tour


def write_tours(results: Path, tours: Tours) -> None:
    write_atomically(results / TOURS, msgspec.json.encode(tours, order="sorted") + b"\n")


def read_tours(results: Path) -> Tours:
    """Read the record; raises RunDirectoryError where it is missing or unreadable."""
    return read_json(results / TOURS, Tours, f"{results} has no {TOURS}")
