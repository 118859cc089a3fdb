"""How often `s2s worth` calls a search paid that is worth nothing, looked at after every run.

    python -m tests.proofs.worth
    python -m tests.proofs.worth --searches 20          to try this script

Simulated searches of twelve runs. Without an effect: answers as independent as those to the first prompt; or
half of them repeat the best so far; or later ones are worse; or the first prompt is left once an answer beats
the start. Scores are normal, heavy in the upper tail, or mostly failures with ties. Each search is compared
with runs of its own kind, and with its answers to the first prompt. The last figure is of searches whose
later answers are better by half a standard deviation, beside runs without that.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import product

import numpy as np
from tests.figures import print_figure

from search_to_signal.base.numerics import Floats
from search_to_signal.base.seeding import stream
from search_to_signal.study.search_runs import SearchRun
from search_to_signal.study.worth import worth

RUNS, ANSWERS, START = 12, 100, 1.0
WITHOUT = ("independent", "repeating", "worse", "leaving")
BETTER = "better"
SCORES = ("normal", "heavy", "failing")


def scores_of(rng: np.random.Generator, kind: str, count: int) -> Floats:
    """(count,) scores of independent answers."""
    if kind == "heavy":
        return rng.pareto(1.5, count)
    scores = rng.normal(size=count)
    return scores if kind == "normal" else np.where(rng.random(count) < 0.7, -np.inf, np.round(scores, 1))


def search(rng: np.random.Generator, kind: str, scores: str, first: int) -> SearchRun:
    """A run with ``first`` answers to the first prompt, and ANSWERS others."""
    score = scores_of(rng, scores, first + ANSWERS)
    if kind == "leaving" and (ahead := np.flatnonzero(score[:first] > START)).size:
        first = int(ahead[0]) + 1
    if kind == "repeating":
        again = np.flatnonzero(rng.random(len(score)) < 0.5)
        for at in again[again > first]:
            score[at] = score[:at].max()
    score[first:] += {"worse": -1.0, BETTER: 0.5}.get(kind, 0.0)
    number = np.arange(len(score))
    return SearchRun("run", START, score, number, {"calls": np.ones(len(score))}, number < first, number < 0)


def is_paid(runs: Sequence[SearchRun], others: Sequence[SearchRun]) -> bool:
    """Whether it is called so after any number of runs."""
    return any(worth(runs[:count], others[:count]).verdict == "paid" for count in range(1, len(runs) + 1))


def share_paid(kind: str, scores: str, beside: str, searches: int) -> float:
    """The share of searches that are called paid."""
    rng, paid = stream(0, "worth", kind, scores, beside), 0
    for _ in range(searches):
        first = 0 if beside == "runs" else ANSWERS
        runs = [search(rng, kind, scores, first) for _ in range(RUNS)]
        other = "independent" if kind == BETTER else kind
        others = [search(rng, other, scores, 0) for _ in range(RUNS if beside == "runs" else 0)]
        paid += is_paid(runs, others)
    print(f"{kind}, {scores}, beside {beside}: {paid} of {searches}", file=sys.stderr)
    return paid / searches


def main() -> None:
    """Simulate, and print the shares that are called paid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--searches", type=int, default=200)
    given = parser.parse_args()
    said = []
    for beside in ("runs", "answers"):
        shares = [share_paid(*one, beside, given.searches) for one in product(WITHOUT, SCORES)]
        better = share_paid(BETTER, "normal", beside, given.searches)
        said.append(
            f"beside {beside} {np.mean(shares):.1%} and at most {max(shares):.1%}, better {better:.1%}"
        )
    printed = f"called paid, {given.searches} searches of each of {len(shares)} kinds: {'; '.join(said)}"
    if given == parser.parse_args([]):
        print_figure("worth", "python -m tests.proofs.worth", printed)
    else:
        print(printed)


if __name__ == "__main__":
    main()
