"""Every faithful answer works and every defect fails in its own way, where a live run would judge them."""

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from handmade_features import call

from recipe.pairs import (
    FAMILY_SHARES,
    Answer,
    Defect,
    PairSource,
    defects,
    draw_pair,
    render_idea,
    spoil,
    write,
)
from search_to_signal.problems.grammar import (
    SCALES,
    SHAPES,
    GrammarProgram,
    Part,
    draw_program,
    render_code,
)
from search_to_signal.problems.obp import Obp
from search_to_signal.records.schema import CALM_OPERATORS, Outcome
from search_to_signal.sandbox.loading import function_of
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import OPENING, Failure, Proposal, parse
from search_to_signal.sandbox.settings import EvaluationSettings

pytestmark = pytest.mark.slow

NO_DEFECTS = {operator: 0.0 for operator in CALM_OPERATORS}

Judge = Callable[[str], tuple[Outcome, str]]


@pytest.fixture(scope="module")
def judge(source: PairSource) -> Iterator[Judge]:
    """Parse a response and run what it proposes on the embedded instances."""
    settings = EvaluationSettings(timeout_s=10.0, replay="off")
    with EvaluationPool(source.problem, "embedded", settings) as pool:

        def judged(response: str) -> tuple[Outcome, str]:
            parsed = parse(response)
            if isinstance(parsed, Failure):
                return parsed.outcome, parsed.detail
            (evaluation,) = pool.evaluate([parsed.code])
            return evaluation.outcome, evaluation.detail

        yield judged


def answer(source: PairSource, seed: int) -> Answer:
    """A faithful answer of the grammar."""
    rng = np.random.default_rng(seed)
    program = draw_program(source.vocabulary, rng)
    return Answer(render_idea(source.vocabulary, program, rng), render_code(source.vocabulary, program))


def test_faithful_answers_are_valid(judge: Judge, source: PairSource) -> None:
    """Answers to every operator parse into their idea and code, and run."""
    rng, operators = np.random.default_rng(5), set()
    responses = []
    while len(responses) < 8 or operators != set(CALM_OPERATORS):
        pair = draw_pair(source, NO_DEFECTS, rng)
        if pair is not None and (len(responses) < 8 or pair.operator not in operators):
            operators.add(pair.operator)
            responses.append(pair.response)
    assert {judge(response) for response in responses} == {(Outcome.VALID, "")}


def test_every_term_is_valid(judge: Judge, source: PairSource) -> None:
    """Beside its anchor every term runs in every shape and scale, added and taken away."""
    vocabulary = source.vocabulary
    anchor = Part(vocabulary.anchor, 0.5)
    for term, shape in itertools.product(vocabulary.terms, SHAPES):
        parts = (Part(term, w, scale, shape) for w, scale in zip((0.3, -0.3, 0.7), SCALES, strict=True))
        program = GrammarProgram((anchor, *parts))
        response = write(Answer(f"{OPENING} try one term.", render_code(vocabulary, program)))
        assert judge(response) == (Outcome.VALID, "")


def test_written_answers_parse_into_their_parts(source: PairSource) -> None:
    """What is written is what is parsed."""
    whole = answer(source, 1)
    assert parse(write(whole)) == Proposal(whole.idea, whole.code)


def test_the_seed_program_stands_for_the_seed_heuristic(source: PairSource) -> None:
    """Of the programs of the grammar, the one that stands for the seed chooses much like the seed."""
    rng = np.random.default_rng(0)
    calls = (
        _packing_calls()
        if source.problem.name == "obp"
        else [call(source.problem.name, rng) for _ in range(60)]
    )
    drawn = [draw_program(source.vocabulary, rng) for _ in range(20)]
    seed = _choices(source.problem.seed.code, calls)
    likeness = [
        np.mean(_choices(render_code(source.vocabulary, program), calls) == seed)
        for program in (source.seed, *drawn)
    ]
    assert likeness[0] > np.median(likeness[1:])


def _packing_calls() -> list[tuple[Any, ...]]:
    """The questions of an instance that the seed heuristic packs; those of a random state say little."""
    problem, calls = Obp(), []
    packing, function = problem.open(problem.instances("embedded")[0]), function_of(problem.seed.code)
    while not packing.done:
        calls.append(packing.question())
        packing.decide(int(np.argmax(function(*packing.question()))))
    return calls


def _choices(code: str, calls: Sequence[tuple[Any, ...]]) -> Any:
    """What a heuristic does in every call: the node or bin that it takes, or the best edge from each node."""
    function = function_of(code)
    answers = [function(*copy.deepcopy(arguments)) for arguments in calls]
    return np.array([a if np.ndim(a) == 0 else np.argmax(a, axis=-1) for a in answers])


def test_defects_fail_in_their_family(judge: Judge, source: PairSource) -> None:
    """A defect changes the answer and ends in exactly the typed failure that it is filed under."""
    for family, defect in _cases(source):
        whole = answer(source, 0)
        response = defect(whole)
        assert response != write(whole)
        assert (family, judge(response)[0]) == (family, family), response


def _cases(source: PairSource) -> list[tuple[Outcome, Defect]]:
    families = defects(source.vocabulary.slips)
    return [(family, defect) for family, choices in families.items() for defect in choices]


def test_every_typed_failure_has_a_family(source: PairSource) -> None:
    """No failure of the host is left out of training, and the families' shares add up."""
    families = defects(source.vocabulary.slips)
    assert set(families) == set(FAMILY_SHARES) == set(Outcome) - {Outcome.VALID}
    assert sum(FAMILY_SHARES.values()) == pytest.approx(1.0)
    assert all(families.values())


def test_families_come_in_their_shares(source: PairSource) -> None:
    """Spoiled answers fall into families by the documented shares, every defect among them."""
    whole, rng, cases = answer(source, 3), np.random.default_rng(0), _cases(source)
    family_of = {defect(whole): family for family, defect in cases}
    assert len(family_of) == len(cases)
    drawn = [spoil(whole, source.vocabulary.slips, rng) for _ in range(4000)]
    assert set(drawn) == set(family_of)
    counts = Counter(family_of[text] for text in drawn)
    for family, share in FAMILY_SHARES.items():
        assert counts[family] / 4000 == pytest.approx(share, abs=0.03)
