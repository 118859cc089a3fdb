"""The shipped heuristics of the field are the programs that their recorded scores belong to."""

import numpy as np
import pytest
from spec.in_process import build_tour, evaluate_in_process

from search_to_signal.problems import get_problem
from search_to_signal.problems.base import heldout_splits
from search_to_signal.problems.tsp import (
    KnownHeuristic,
    known_heuristics,
    known_scores,
    reference_file,
    reference_lengths,
)
from search_to_signal.sandbox.loading import function_of
from search_to_signal.sandbox.programs import sha256_text

TSP = get_problem("tsp")
RECORDED = {(one.code_sha256, one.split): one for one in known_scores()}
NAMED = {known.name: known for known in known_heuristics()}


def test_every_heuristic_has_scores_on_every_size() -> None:
    """No more and no fewer, 64 tours each, none shorter than its instance's lower bound."""
    hashes = [sha256_text(known.program) for known in known_heuristics()]
    splits = heldout_splits(TSP)
    assert list(RECORDED) == [(sha256, split) for split in splits for sha256 in hashes]
    for (_, split), one in RECORDED.items():
        bounds = [reference.lower_bound for reference in reference_file().splits[split].instances]
        assert (-np.array(one.scores) >= np.array(bounds) - 1e-9).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("known", known_heuristics(), ids=lambda known: known.name)
def test_recorded_scores_are_those_of_the_program(known: KnownHeuristic) -> None:
    for split in heldout_splits(TSP)[:2]:
        again = evaluate_in_process(TSP, known.program, TSP.instances(split)[:1])
        recorded = RECORDED[sha256_text(known.program), split].scores
        assert again == pytest.approx(recorded[:1], rel=1e-9)


def test_rules_by_hand() -> None:
    """On a line from the start at 0 each rule goes where its sentence says."""
    places = np.array([0.0, 1.0, -1.2, 2.0])
    line = np.abs(places[:, None] - places)
    expected = {"Nearest neighbour": [0, 1, 3, 2], "Agentic ESOpt with EoH, reflection": [0, 1, 3, 2]}
    for name, tour in expected.items():
        assert build_tour(function_of(NAMED[name].program), line).tolist() == tour
    # From node 1: 2 x 1 - 2 for node 3 is below 2 x 2.2 - 1.2 for node 2.
    assert function_of(NAMED["Agentic ESOpt with EoH, reflection"].program)(1, 0, {2, 3}, line) == 3


def test_looking_ahead_is_shorter_than_not() -> None:
    """The rules that plan the rest of the tour beat the nearest neighbour by far, as their sources say."""
    gaps = {
        name: np.mean(
            -np.array(RECORDED[sha256_text(known.program), "heldout_50"].scores)
            / reference_lengths("heldout_50")
            - 1.0
        )
        for name, known in NAMED.items()
    }
    assert gaps["TIDE"] < gaps["MCTS-AHD"] < gaps["Nearest neighbour"]
