"""Make the reference tours of the held-out TSP instances: ``python -m tests.references.tsp``.

With ``--check`` the first small one is made again instead and held against the shipped one.

PyVRP finds a tour of each instance as a problem with one vehicle and no demand, on distances in
millionths; kicks with 2-opt and Or-opt polish it on the exact distances; Held and Karp's bound says how
far from optimal it can be at most. Equal versions give equal bytes.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pyvrp import Model
from pyvrp.stop import MaxIterations
from tests.references.local_search import polished
from tests.references.lower_bound import held_karp_bound

from search_to_signal.problems import get_problem
from search_to_signal.problems.tsp import DISTANCES_SHA256, tour_length
from search_to_signal.problems.tsp import REFERENCES_FILE as FILE

SPLITS = ("heldout_50", "heldout_100", "heldout_200")
SEED, ITERATIONS, KICKS = 1, 50, 500
METHOD = (
    "tours by PyVRP as one vehicle without demand ({iterations} iterations, distances in millionths), then "
    "2-opt and Or-opt with {kicks} double-bridge kicks per node on exact distances; lower bounds by Held "
    "and Karp's 1-trees"
)


def vehicle_tour(distance: Any, iterations: int = ITERATIONS, seed: int = SEED) -> Any:
    """The best tour that PyVRP finds, (n,) from node 0."""
    model = Model()
    nodes = [model.add_depot(0, 0), *(model.add_client(0, 0) for _ in distance[1:])]
    model.add_vehicle_type(1)
    lengths = np.rint(distance * 1e6).astype(int).tolist()
    for i, start in enumerate(nodes):
        for j, end in enumerate(nodes):
            if i != j:
                model.add_edge(start, end, lengths[i][j])
    (route,) = model.solve(MaxIterations(iterations), seed=seed, display=False).best.routes()
    return np.array([0, *route.visits()])


def reference(place: tuple[str, int]) -> dict[str, Any]:
    """The reference of one instance, by split and number."""
    split, number = place
    distance = get_problem("tsp").instances(split)[number]["distance"]
    first = vehicle_tour(distance)
    best = polished(distance, first, KICKS * len(distance), SEED)
    return {
        "tour": best.tolist(),
        "length": tour_length(distance, best),
        "pyvrp_length": tour_length(distance, first),
        "lower_bound": held_karp_bound(distance, tour_length(distance, best)),
    }


def main() -> None:
    """Write the file that problems/tsp.py reads."""
    written: dict[str, Any] = {
        "method": METHOD.format(iterations=ITERATIONS, kicks=KICKS),
        "versions": {name: version(name) for name in ("pyvrp", "numpy", "numba")},
        "seed": SEED,
        "splits": {},
    }
    with ProcessPoolExecutor(1) as pool:
        for split in SPLITS:
            count = len(get_problem("tsp").instances(split))
            found = list(pool.map(reference, [(split, number) for number in range(count)]))
            written["splits"][split] = {"distances_sha256": DISTANCES_SHA256[split], "instances": found}
            print(f"{split}: {count} instances", flush=True)
    Path(FILE).write_text(json.dumps(written, separators=(",", ":")) + "\n", encoding="utf-8")


def check() -> None:
    """PyVRP, polishing and bound give the shipped tour of the first small instance again, or it fails."""
    shipped = json.loads(Path(FILE).read_text(encoding="utf-8"))["splits"][SPLITS[0]]["instances"][0]
    if (again := reference((SPLITS[0], 0))) != shipped:
        raise SystemExit(f"made again: {again}, shipped: {shipped}")
    print("equal")


if __name__ == "__main__":
    check() if sys.argv[1:] == ["--check"] else main()
