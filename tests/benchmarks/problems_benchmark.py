"""Reference and fast evaluators side by side, on the seed heuristics, one core, one run.

    nice -n 10 python tests/benchmarks/problems_benchmark.py [--repeat 5] [--skip-cold]

Colonies: the reference is the literal torch colony in tests/oracles on one thread; one reference run is
set against the best of ``repeat`` fast runs, and the bits must be equal. All in CPU seconds. TSP and OBP: the
floor is the heuristic's own time with the copies that every call must make: a set and a matrix for TSP, the
array of the capacities that fit for OBP (``remaining[remaining >= item]`` over all bins, and a plain copy).
Cold start is measured in fresh processes with empty caches.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "oracles"))

import colony_oracles
from spec.in_process import evaluate_in_process

from search_to_signal.problems import PROBLEMS
from search_to_signal.sandbox.loading import function_of

COLD = """
import time
begin = time.perf_counter()
from search_to_signal.problems import PROBLEMS
from search_to_signal.sandbox.loading import function_of
from spec.in_process import run_in_process
problem = PROBLEMS[{name!r}]
run_in_process(problem, function_of(problem.seed.code), "train")
print(time.perf_counter() - begin)
"""


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and result of one call: one thread each, and the machine may have other work."""
    begin = process_time()
    result = call()
    return process_time() - begin, result


def best_of(repeat: int, call: Callable[[], Any]) -> tuple[float, Any]:
    """Least CPU seconds of several calls, and the last result."""
    runs = [timed(call) for _ in range(repeat)]
    return min(seconds for seconds, _ in runs), runs[-1][1]


def reference_scores(name: str) -> list[float]:
    """Scores of the seed heuristic by the literal colony."""
    problem: Any = PROBLEMS[name]
    function = function_of(problem.seed.code)
    scores = []
    for instance in problem.instances("train"):
        arguments = problem.arguments(instance, function.__code__.co_argcount)
        matrix = function(*problem.arguments(instance, function.__code__.co_argcount))
        if name == "cvrp":
            distance, _, demands, capacity = arguments
            scores.append(-colony_oracles.cvrp_best_cost(distance, demands, capacity, matrix))
        else:
            scores.append(colony_oracles.op_best_prize(*arguments, matrix))
    return scores


def compare_colony(name: str, repeat: int) -> None:
    """Print reference and fast seconds of a colony; stops when a bit differs."""
    problem = PROBLEMS[name]
    function, instances = function_of(problem.seed.code), problem.instances("train")
    evaluate_in_process(problem, function, instances)
    fast, scores = best_of(repeat, lambda: evaluate_in_process(problem, function, instances))
    slow, expected = timed(lambda: reference_scores(name))
    if scores != expected:
        raise SystemExit(f"{name}: scores differ from the reference: {scores} {expected}")
    print(f"{name:5} reference {slow:8.3f} s   fast {fast:7.4f} s   {slow / fast:6.1f} x   bits equal")


def tour_floor(function: Any, instance: Any, plain: bool) -> float:
    """Seconds that the function itself takes on one instance, with a fresh set and matrix per call."""
    distance, seconds, current = instance["distance"], 0.0, 0
    unvisited = list(range(1, len(distance)))
    while unvisited:
        begin = process_time()
        current = int(function(current, 0, set(unvisited), distance.copy()))
        seconds += process_time() - begin
        unvisited.remove(current)
    return seconds


def stream_floor(function: Any, instance: Any, plain: bool) -> float:
    """Seconds that the function itself takes on one instance, with the fresh array of each call."""
    packing, seconds = PROBLEMS["obp"].open(instance), 0.0  # type: ignore[attr-defined]
    remaining = np.full(len(instance["items"]), float(instance["capacity"]))
    while not packing.done:
        item, capacities = packing.question()
        begin = process_time()
        fresh = capacities.copy() if plain else remaining[remaining >= item]
        choice = int(np.argmax(function(item, fresh)))
        seconds += process_time() - begin
        remaining[np.flatnonzero(remaining >= item)[choice]] -= item
        packing.decide(choice)
    return seconds


def compare_calls(name: str, repeat: int, floor: Any, kinds: dict[str, bool]) -> None:
    """Print the evaluator's seconds over the heuristic's own."""
    problem = PROBLEMS[name]
    function, instances = function_of(problem.seed.code), problem.instances("train")
    calls = sum(len(next(iter(instance.values()))) for instance in instances)
    timer = calls * float(np.median([timed(lambda: None)[0] for _ in range(9999)]))
    whole: list[float] = []
    own: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(repeat):  # interleaved, so that a slow moment of the machine meets both
        whole.append(timed(lambda: evaluate_in_process(problem, function, instances))[0])
        for kind, plain in kinds.items():
            own[kind].append(sum(floor(function, instance, plain) for instance in instances) - timer)
    for kind, seconds in own.items():
        best, least = min(whole), min(seconds)
        over = 100 * (best / least - 1)
        print(f"{name:5} evaluator {best:8.4f} s   heuristic and {kind} {least:8.4f} s   {over:+5.1f} %")


def cold_start(name: str) -> None:
    """Print the seconds of a first and of a second process, from import to the scores of the training set."""
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "XDG_CACHE_HOME": empty, "NUMBA_CACHE_DIR": f"{empty}/numba"}
        seconds = [
            float(subprocess.check_output([sys.executable, "-c", COLD.format(name=name)], env=environment))
            for _ in range(2)
        ]
    print(
        f"{name:5} cold start, paid once per machine {seconds[0]:6.2f} s   next process {seconds[1]:6.2f} s"
    )


def main() -> None:
    """Run all comparisons on one core."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--skip-cold", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore", RuntimeWarning)
    for name in ("cvrp", "op"):
        compare_colony(name, options.repeat)
    compare_calls("tsp", options.repeat, tour_floor, {"set and matrix copies": True})
    kinds = {"filtered copies": False, "plain copies": True}
    compare_calls("obp", options.repeat, stream_floor, kinds)
    for name in () if options.skip_cold else ("cvrp", "op"):
        cold_start(name)


if __name__ == "__main__":
    main()
