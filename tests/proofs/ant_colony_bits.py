"""Every training instance under every golden and every ugly matrix: compiled colony against the literal one.

    nice -n 10 python tests/proofs/ant_colony_bits.py [--problem op] [--instances 2] [--fallback]

Takes about ten minutes on one core for everything. Ends in ``bits equal`` or with the first difference.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "oracles"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "problems"))

import colony_oracles
from colonies import MATRICES

from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.ant_colony import colonies
from search_to_signal.problems.base import InfeasibleAnswerError
from search_to_signal.sandbox.loading import function_of

TESTS = Path(__file__).parents[1]
REFUSED = "refused"


def matrices(problem: Any, instance: Any, index: int) -> Iterator[tuple[str, Any]]:
    """Name and matrix of every case on one instance; the ugly ones differ from instance to instance."""
    for entry in json.loads((TESTS / "golden" / "heuristics.json").read_text()):
        if entry["problem"] == problem.name:
            yield entry["name"], function_of(entry["code"])(*problem.arguments(instance, 4))
    for kind, make in MATRICES.items():
        yield kind, make(np.random.RandomState(index), instance["distance"].shape)


def reference(name: str, instance: Any, matrix: Any) -> Any:
    """Score by the literal colony, or that torch refuses the matrix."""
    fields = {key: np.array(value) for key, value in instance.items()}
    try:
        if name == "op":
            limit = float(fields["maxlen"])
            return colony_oracles.op_best_prize(fields["prize"], fields["distance"], limit, matrix.copy())
        capacity = float(fields["capacity"])
        return -colony_oracles.cvrp_best_cost(fields["distance"], fields["demands"], capacity, matrix.copy())
    except RuntimeError:
        return REFUSED


def ours(problem: Any, instance: Any, matrix: Any) -> Any:
    """Score by the package, or that it refuses the matrix."""
    try:
        return problem.score(instance, matrix)
    except InfeasibleAnswerError:
        return REFUSED


def compare(name: str, instances: int) -> int:
    """Compare all cases of one problem; returns how many, or stops at a difference."""
    problem, cases = PROBLEMS[name], 0
    for index, instance in enumerate(problem.instances("train")[:instances]):
        for kind, matrix in matrices(problem, instance, index):
            found, expected = ours(problem, instance, matrix), reference(name, instance, matrix)
            if found != expected:
                raise SystemExit(f"{name} instance {index}, {kind}: {found!r} is not {expected!r}")
            cases += 1
        print(f"{name} instance {index}: {cases} cases so far", flush=True)
    return cases


def main() -> None:
    """Compare what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problem", choices=["cvrp", "op"], action="append")
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--fallback", action="store_true", help="try the torch colony instead")
    options = parser.parse_args()
    if options.fallback:
        colonies.score_path = colonies.orienteering_score_path = lambda *_: "fallback"
    cases = {name: compare(name, options.instances) for name in options.problem or ("cvrp", "op")}
    print(f"bits equal: {cases}")


if __name__ == "__main__":
    main()
