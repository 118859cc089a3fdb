"""What every host is made of: members and their records, requests, and what a problem offers a prompt."""

from typing import Any

import msgspec
import numpy as np
import pytest

from search_to_signal.base.errors import MappingError, RecordError
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import Heuristic, Problem, task_of
from search_to_signal.records.schema import HeuristicRecord, Outcome
from search_to_signal.sandbox.programs import ANSWER_RULES, OPENING
from search_to_signal.search.host import HostSetup, Request, begin, host_facts
from search_to_signal.search.hosts import HOSTS, open_host
from search_to_signal.search.member import (
    Evaluated,
    Prompt,
    given_member,
    heuristic_record,
    member_of,
    seed_member,
)

SEED = Heuristic("The idea of the algorithm is to wait.", "def f():\n    return 0")


@pytest.mark.parametrize("scores", [(), (-1.0, -3.0)])
def test_a_member_comes_back_from_its_record(scores: tuple[float, ...]) -> None:
    member = seed_member(SEED, -2.0, scores)
    line = msgspec.json.encode(heuristic_record(member))
    assert (b"instance_scores" in line) is bool(scores)
    assert given_member(msgspec.json.decode(line, type=HeuristicRecord)) == member


def test_a_valid_completion_becomes_a_member() -> None:
    result = Evaluated(Outcome.VALID, SEED.idea, SEED.code, -2.0, instance_scores=(-1.0, -3.0))
    member = member_of(result, "improvement", step=4, index=1)
    assert (member.operator, member.step, member.index, member.score) == ("improvement", 4, 1, -2.0)
    assert (member.id, member.instance_scores) == (seed_member(SEED, 0.0).id, (-1.0, -3.0))
    with pytest.raises(RecordError, match="step 4, completion 1 has no score"):
        member_of(Evaluated(Outcome.MISSING_CODE), "improvement", step=4, index=1)


@pytest.mark.parametrize("name", ["", "Improve", "two words", "2nd", "a\n", "x" * 33, "crossover!"])
def test_an_operator_is_a_name(name: str) -> None:
    with pytest.raises(MappingError):
        Request(Prompt("", ""), name, (), (), (), None)
    assert Request(Prompt("", ""), "best_shot_2", (), (), (), None).operator == "best_shot_2"


@pytest.mark.parametrize("name", sorted(HOSTS.keys() - {"released"}))
def test_a_host_needs_no_knobs_of_another(name: str) -> None:
    problem = PROBLEMS["tsp"]
    host = open_host(name, HostSetup(problem))
    state = begin(host, seed_member(problem.seed, -4.9))
    assert host.propose(state, np.random.default_rng(0)).prompt.user
    assert host_facts(host).instance_scores is msgspec.UNSET


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_a_task_has_what_a_prompt_needs(problem: Problem) -> None:
    task = task_of(problem)
    assert task.signature in problem.seed.code
    assert task.signature.startswith("def ")
    assert (task.title, task.description, task.unit) == (problem.title, problem.description, problem.unit)
    assert 0 < len(task.statement) < len(task.description)
    assert OPENING in ANSWER_RULES


def test_a_problem_without_a_statement_has_its_description() -> None:
    class Bare:
        title, description, unit, maximized = "Bare", "Do it.", "points", True
        template = "import math\n\ndef act(x):\n    return y\n"

    bare: Any = Bare()
    assert (task_of(bare).statement, task_of(bare).signature) == ("Do it.", "def act(x):")
