"""Adding a problem is one file that a profile names."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from spec.in_process import run_in_process
from tests.profiles import profile_head

from search_to_signal.base.errors import ConfigError, MappingError
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import score_unit
from search_to_signal.run.profile import load_profile
from search_to_signal.sandbox.loading import function_of
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "nearest_number.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page's file, where Python looks; yields the name that a profile gives it."""
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    yield "nearest_number:problem"
    sys.modules.pop("nearest_number", None)


@pytest.mark.slow
def test_the_example_adds_a_problem(example: str) -> None:
    """The page's file gives the same scores in process and through isolated workers."""
    problem = get_problem(example)
    assert run_in_process(problem, function_of(problem.seed.code), "train") == [-0.0, -1.0]
    with EvaluationPool(problem, "train", EvaluationSettings()) as pool:
        seed, worse, wrong = pool.evaluate(
            [
                problem.seed.code,
                "def rate(target, candidates):\n    return abs(candidates - target)\n",
                "def rate(target, candidates):\n    return candidates[:2]\n",
            ]
        )
    assert seed.per_instance == (-0.0, -1.0)
    assert worse.per_instance == (-2.0, -1.0)
    assert wrong.score is None


def test_a_problem_that_cannot_score_is_one_line(example: str) -> None:
    """Its own mistake is named with problem, file and line, and is no failure of the candidate."""
    module = importlib.import_module("nearest_number")
    module.NearestNumber.score = lambda *_: np.reshape(np.zeros(3), 2)
    said = r"^problem nearest_number raised ValueError: .* \(test_problems_adding\.py:[0-9]+\)"
    pool = EvaluationPool(module.problem, "train", EvaluationSettings())
    with pytest.raises(MappingError, match=said), pool:
        pool.evaluate([module.problem.seed.code])


def test_a_score_says_what_it_measures(example: str) -> None:
    """The unit of a problem that is maximized stands as it is, of any other with a minus."""
    module = importlib.import_module("nearest_number")
    assert score_unit(get_problem(example)) == "minus distance"
    module.problem.maximized = True
    assert score_unit(get_problem(example)) == "distance"


def test_what_is_no_problem_is_told_so(example: str) -> None:
    """A class, an object without a dialogue, and one that lacks a field are refused with what to do."""
    module = importlib.import_module("nearest_number")
    with pytest.raises(ConfigError):
        get_problem("nearest_number:NearestNumber")
    with pytest.raises(ConfigError):
        get_problem("nearest_number:np")
    del module.NearestNumber.answer_shape
    with pytest.raises(ConfigError, match="lacks answer_shape"):
        get_problem(example)


def test_held_out_instances_that_do_not_exist_are_asked_for_in_vain(example: str, tmp_path: Path) -> None:
    """The profile is refused when it is read, not once every other layer has run."""
    path = tmp_path / "mine.toml"
    head = profile_head("frozen", groups=2, problem=example, split="train")
    path.write_text(f'{head}[heldout]\nbehaviour_split = "train"\n')
    with pytest.raises(ConfigError, match=r"\[heldout\] needs a split"):
        load_profile(str(path))
