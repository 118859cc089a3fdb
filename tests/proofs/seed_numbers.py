"""How good a search of TSP gets that has no language model and changes the seed heuristic's numbers alone.

    python -m tests.proofs.seed_numbers
    python -m tests.proofs.seed_numbers --tries 20 --repeats 2          to try this script

Each repeat climbs: normal steps are added to the best four numbers so far, which a better score on the
instances of the search replaces. Prints the best score after so many tries, mean and 95 % interval over
repeats, and how much longer or shorter the tours of the last ones are than the seed heuristic's on unseen
instances. Scores are those of the evaluator: a sample is compared with it.
"""

import argparse
import re
import sys
import warnings
from collections.abc import Sequence
from statistics import mean

import numpy as np
from tests.figures import print_figure

from search_to_signal.base.numerics import Floats
from search_to_signal.base.seeding import stream
from search_to_signal.problems import get_problem
from search_to_signal.sandbox.loading import function_of
from search_to_signal.sandbox.worker import build_tour
from search_to_signal.study.verdicts import t_interval

TSP = get_problem("tsp")
SEED = np.array([0.4, -0.3, 0.2, -0.1])
SAMPLE = 8
SPLITS = ("heldout_50", "heldout_100", "heldout_200")


def distances(split: str) -> Floats:
    """(B, n, n) of all instances."""
    return np.stack([instance["distance"] for instance in TSP.instances(split)])


def score(distance: Floats, weight: Floats) -> float:
    """Score of four numbers: minus the mean length of the tours that they build."""
    return -float(tour_lengths(distance, weight).mean())


def tour_lengths(distance: Floats, weight: Floats) -> Floats:
    """(B,) lengths of the tours of all instances, built node by node as the evaluator asks for them."""
    count, size, _ = distance.shape
    rows = np.arange(count)
    current, lengths = np.zeros(count, dtype=int), np.zeros(count)
    unvisited = np.ones((count, size), dtype=bool)
    # Sums of each node's distances to the unvisited nodes, and of their squares; itself it is at no distance.
    sums, squares = distance.sum(axis=2), (distance**2).sum(axis=2)
    for left in range(size - 1, 0, -1):
        unvisited[rows, current] = False
        sums -= distance[rows, current]
        squares -= distance[rows, current] ** 2
        others = max(left - 1, 1)
        middle = sums / others
        deviation = np.sqrt(np.maximum(squares / others - middle**2, 0.0))
        features = (distance[rows, current], middle, deviation, distance[:, 0])
        cost = sum(number * feature for number, feature in zip(weight, features, strict=True))
        chosen = np.where(unvisited, cost, np.inf).argmin(axis=1)
        lengths += distance[rows, chosen, current]
        current = chosen
    closed: Floats = lengths + distance[rows, 0, current]
    return closed


def program(weight: Floats) -> str:
    """The seed heuristic with other numbers."""
    numbers = iter(weight)
    return re.sub(r"0\.\d \*", lambda _: f"({next(numbers)!r}) *", TSP.seed.code.replace("- ", "+ "))


def evaluated(distance: Floats, weight: Floats) -> float:
    """The evaluator's score of the program with these numbers."""
    function = function_of(program(weight))
    tours = (np.frombuffer(build_tour(function, matrix), dtype=np.int64) for matrix in distance)
    with warnings.catch_warnings():
        # For the last node the seed heuristic takes the mean of no distances.
        warnings.simplefilter("ignore", RuntimeWarning)
        return mean(
            TSP.score({"distance": matrix}, tour) for matrix, tour in zip(distance, tours, strict=True)
        )


def climb(distance: Floats, tries: Sequence[int], sigma: float, repeat: int) -> tuple[list[float], Floats]:
    """Best scores after so many tries, the seed heuristic included, and the best numbers after the last."""
    steps = stream(repeat, "seed numbers", str(sigma)).normal(0.0, sigma, (max(tries), len(SEED)))
    best, reached, found = SEED, score(distance, SEED), []
    for step in steps:
        if (now := score(distance, best + step)) > reached:
            best, reached = best + step, now
        found.append(reached)
    return [found[number - 1] for number in tries], best


def interval(values: Sequence[float], decimals: int) -> str:
    """Mean and 95 % interval."""
    ends = ", ".join(f"{end:+.{decimals}f}" for end in t_interval(values, 0.95))
    return f"{mean(values):+.{decimals}f} [{ends}]"


def main() -> None:
    """Climb, and print what was reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tries", type=int, nargs="+", default=[188, 532])
    parser.add_argument("--repeats", type=int, default=24)
    parser.add_argument("--sigma", type=float, default=0.1)
    given = parser.parse_args()
    train = distances("train")
    climbed = []
    for repeat in range(given.repeats):
        climbed.append(climb(train, given.tries, given.sigma, repeat))
        print(f"repeat {repeat + 1} of {given.repeats}: {climbed[-1][0]}", file=sys.stderr)
    said = [
        f"{tries} tries: {interval([best[number] for best, _ in climbed], 4)}"
        for number, tries in enumerate(given.tries)
    ]
    finals = [weight for _, weight in climbed]
    for split in SPLITS:
        unseen = distances(split)
        base = tour_lengths(unseen, SEED)
        longer = [100.0 * float((tour_lengths(unseen, weight) / base - 1.0).mean()) for weight in finals]
        said.append(f"{split} {interval(longer, 2)} % longer than the seed's")
    few = train[:SAMPLE]
    differ = sum(abs(evaluated(few, weight) - score(few, weight)) > 1e-9 for weight in [SEED, *finals])
    said.append(f"{differ} of {len(finals) + 1} scores on {SAMPLE} instances differ from the evaluator's")
    printed = f"n = {given.repeats}: {'; '.join(said)}"
    if given == parser.parse_args([]):
        print_figure("seed_numbers", "python -m tests.proofs.seed_numbers", printed)
    else:
        print(printed)


if __name__ == "__main__":
    main()
