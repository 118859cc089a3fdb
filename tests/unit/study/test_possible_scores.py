"""Recorded held-out scores that no tours can have are named, whatever makes them impossible."""

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from search_to_signal.problems.tsp_known import known_scores
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.records.schema import Outcome
from search_to_signal.study.standings import score_problems


@dataclass(frozen=True)
class Wanted:
    """A program whose scores are asked for."""

    sha256: str
    name: str = "a program"


def impossible(scored: ProgramScores) -> bool:
    """Whether scores of a wanted program are said to be those of no tours."""
    problems = list(score_problems([Wanted(scored.code_sha256)], [scored]))
    return any("scores that no tours of these instances have" in problem for problem in problems)


@pytest.fixture
def good() -> ProgramScores:
    """The recorded scores of a known heuristic."""
    return next(scored for scored in known_scores() if scored.outcome is Outcome.VALID)


def test_scores_that_no_tours_have_are_named(good: ProgramScores) -> None:
    assert not impossible(good)
    assert impossible(replace(good, scores=good.scores[:-1]))
    assert impossible(replace(good, scores=(*good.scores, good.scores[-1])))
    assert impossible(replace(good, scores=(*good.scores[:-1], -0.1)))
    assert impossible(replace(good, outcome=Outcome.RUNTIME_FAILURE))
    assert impossible(replace(good, scores=()))
    assert not impossible(replace(good, outcome=Outcome.RUNTIME_FAILURE, scores=()))
