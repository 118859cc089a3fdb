"""Every faithful answer works and every defect fails in its own way, where a live run would judge them."""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from search_to_signal.corpus.defects import DEFECTS, FAMILY_SHARES, Answer, spoil, write
from search_to_signal.corpus.grammar import draw_program, render_code, render_idea
from search_to_signal.corpus.pairs import Source, draw_pair
from search_to_signal.corpus.tsp import SEED, TSP
from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.problems import get_problem
from search_to_signal.programs.parsing import Failure, Proposal, parse
from search_to_signal.records.schema import Operator, Outcome

SOURCE = Source(get_problem("tsp"), TSP, SEED)
CASES = [(family, defect) for family, defects in DEFECTS.items() for defect in defects]
NO_DEFECTS = {operator.value: 0.0 for operator in Operator}

Judge = Callable[[str], tuple[Outcome, str]]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """Parse a response and run what it proposes on the embedded instances."""
    with EvaluationPool(SOURCE.problem, "embedded", EvaluationSettings(timeout_s=10.0, replay="off")) as pool:

        def judged(response: str) -> tuple[Outcome, str]:
            parsed = parse(response)
            if isinstance(parsed, Failure):
                return parsed.outcome, parsed.detail
            (evaluation,) = pool.evaluate([parsed.code])
            return evaluation.outcome, evaluation.detail

        yield judged


def answer(seed: int) -> Answer:
    """A faithful answer of the grammar."""
    rng = np.random.default_rng(seed)
    program = draw_program(TSP, rng)
    return Answer(render_idea(TSP, program, rng), render_code(TSP, program))


def test_faithful_answers_are_valid(judge: Judge) -> None:
    """Answers to every operator parse into their idea and code, and run."""
    rng, operators = np.random.default_rng(5), set()
    responses = []
    while len(responses) < 20 or operators != set(Operator):
        pair = draw_pair(SOURCE, NO_DEFECTS, rng)
        if pair is not None and (len(responses) < 20 or pair.operator not in operators):
            operators.add(pair.operator)
            responses.append(pair.response)
    assert {judge(response) for response in responses} == {(Outcome.VALID, "")}


def test_written_answers_parse_into_their_parts() -> None:
    """What is written is what is parsed."""
    whole = answer(1)
    assert parse(write(whole)) == Proposal(whole.idea, whole.code)


def test_the_seed_program_is_the_seed_heuristic() -> None:
    """The program that stands for the seed in the grammar mostly chooses what the seed heuristic chooses."""
    chosen = []
    for code in (SOURCE.problem.seed.code, render_code(TSP, SEED)):
        namespace: dict[str, Callable[..., int]] = {}
        exec(code, namespace)  # type: ignore[arg-type]
        matrix = SOURCE.problem.instances("embedded")[0]["distance"]
        chosen.append([namespace["select_next_node"](0, 0, set(range(1, n)), matrix) for n in range(15, 30)])
    matches = np.mean(np.array(chosen[0]) == np.array(chosen[1]))
    assert matches > 0.6


@pytest.mark.parametrize(("family", "defect"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_defects_fail_in_their_family(judge: Judge, family: Outcome, defect: Callable[[Answer], str]) -> None:
    """A defect changes the answer and ends in exactly the typed failure that it is filed under."""
    for seed in range(2):
        whole = answer(seed)
        response = defect(whole)
        assert response != write(whole)
        assert judge(response)[0] is family


def test_every_typed_failure_has_a_family() -> None:
    """No failure of the host is left out of training, and the families' shares add up."""
    assert set(DEFECTS) == set(FAMILY_SHARES) == set(Outcome) - {Outcome.VALID}
    assert sum(FAMILY_SHARES.values()) == pytest.approx(1.0)
    assert all(DEFECTS.values())


def test_families_come_in_their_shares() -> None:
    """Spoiled answers fall into families by the documented shares, every defect among them."""
    whole, rng = answer(3), np.random.default_rng(0)
    by_text = {defect(whole): (family, defect) for family, defect in CASES}
    assert len(by_text) == len(CASES)
    drawn = [by_text[spoil(whole, rng)] for _ in range(4000)]
    counts = Counter(family for family, _ in drawn)
    assert {defect for _, defect in drawn} == {defect for _, defect in CASES}
    for family, share in FAMILY_SHARES.items():
        assert counts[family] / 4000 == pytest.approx(share, abs=0.03)
