"""What is compared to its end: impossible scores, cells and ids behind the last."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from search_to_signal.problems.tsp import known_scores
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.records.schema import Outcome
from search_to_signal.study.packed_run import short_generations, whole_generations
from search_to_signal.study.rebuilding import table_differences
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


@pytest.mark.parametrize("head", ["a,b", "row,column,value,spread,n"])
def test_a_cell_behind_the_head_is_compared(tmp_path: Path, head: str) -> None:
    row = ",".join("1" for _ in head.split(","))
    for name, text in (("one", f"{head}\n{row}\n"), ("other", f"{head}\n{row},2\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.csv").write_text(text, encoding="utf-8")
    (told,) = table_differences(tmp_path / "one", tmp_path / "other")
    assert told.endswith("shipped (absent) | rebuilt 2")


@pytest.mark.parametrize("extra", [[], [[9]], [[9], [7, 8]]])
def test_ids_behind_the_last_text_are_kept(extra: list[list[int]]) -> None:
    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [[len(text)] for text in texts]

    ids = [[1, 0], [2, 0], *extra]
    line: dict[str, Any] = {
        "step": 0,
        "prompt": "p",
        "completions": ["a", "bb"],
        "prompt_ids": [1],
        "completion_ids": ids,
    }
    (short,) = short_generations([line], encode, [0])
    (whole,) = whole_generations([short], encode, [0])
    assert ("completion_ids" in short) == bool(extra)
    assert {name: whole[name] for name in line} == line
