"""Training pairs: reproducible, in the right shares, and never a held-out combination."""

import itertools
from collections import Counter

import numpy as np
import pytest

from recipe.pairs import (
    SEED_SHARE,
    PairSource,
    TrainingPair,
    apply,
    draw_prompt,
    mixed_pairs,
    pairs,
    sources,
)
from search_to_signal.base.errors import ConfigError
from search_to_signal.problems import get_problem
from search_to_signal.problems.grammar import (
    SCALES,
    SHAPES,
    GrammarProgram,
    Part,
    Vocabulary,
    draw_program,
    held_out,
    render_code,
)
from search_to_signal.records.schema import CALM_OPERATORS
from search_to_signal.sandbox.programs import COMPONENT_AFTER, COMPONENT_BEFORE, Proposal, parse
from search_to_signal.search.hosts.calm.prompts import CREATION, CROSSOVER, INJECTION, REPLACEMENT
from search_to_signal.search.hosts.calm.state import component

pytestmark = pytest.mark.slow

SHARES = dict.fromkeys(CALM_OPERATORS, 0.4) | {"injection": 0.7}
COUNT = 1500


@pytest.fixture(scope="module")
def drawn(source: PairSource) -> list[TrainingPair]:
    """Many training pairs."""
    return list(itertools.islice(pairs(source, SHARES, np.random.default_rng(11)), COUNT))


def test_equal_seeds_give_equal_pairs(source: PairSource, drawn: list[TrainingPair]) -> None:
    """The stream of pairs follows from its generator, and another seed gives others."""
    again = list(itertools.islice(pairs(source, SHARES, np.random.default_rng(11)), 50))
    assert again == drawn[:50]
    other = list(itertools.islice(pairs(source, SHARES, np.random.default_rng(12)), 50))
    assert {pair.response for pair in other}.isdisjoint(pair.response for pair in again)
    assert len({pair.response for pair in drawn}) > 0.95 * COUNT


def test_no_held_out_program_in_training(source: PairSource, drawn: list[TrainingPair]) -> None:
    """No parent is a held-out combination, and no answer's code that of a held-out program."""
    assert not any(held_out(parent.program) for pair in drawn for parent in pair.parents)
    rng, programs = np.random.default_rng(11), 0
    hidden = set()
    while programs < 3000:
        program = draw_program(source.vocabulary, rng)
        hidden |= {_skeleton(render_code(source.vocabulary, program))} if held_out(program) else set()
        programs += 1
    shown = {_skeleton(found.code) for pair in drawn if isinstance(found := parse(pair.response), Proposal)}
    assert len(hidden) > 200
    assert hidden.isdisjoint(shown)


def _skeleton(code: str) -> tuple[str, ...]:
    """The terms, scales and shapes of a program's lines, without weights and order."""
    lines = (line.split("= ", 1)[1] for line in code.splitlines() if line.startswith("    score"))
    return tuple(sorted(line.rsplit(" * ", 1)[0] for line in lines))


def test_children_follow_from_their_prompts(source: PairSource) -> None:
    """A faithful answer's code has the terms of an edit of the very parents that its prompt shows."""
    none, vocabulary = dict.fromkeys(SHARES, 0.0), source.vocabulary
    written = _written(vocabulary)
    for pair in itertools.islice(pairs(source, none, np.random.default_rng(2)), 60):
        found = parse(pair.response)
        assert isinstance(found, Proposal)
        programs = [parent.program for parent in pair.parents]
        rng = np.random.default_rng(0)
        # Drawn until the edit comes, of which most are among the first hundred.
        possible = (
            tuple(sorted(apply(vocabulary, pair.operator, 2, programs, rng).terms)) for _ in range(1500)
        )
        if pair.operator != CREATION:
            assert tuple(sorted(written[line] for line in _skeleton(found.code))) in possible
        assert all(parent.code in pair.prompt.user for parent in pair.parents)


def _written(vocabulary: Vocabulary) -> dict[str, str]:
    """The names of the terms by the lines that they are written in."""
    lines: dict[str, str] = {}
    for term, scale, shape in itertools.product(vocabulary.terms, SCALES, SHAPES):
        program = GrammarProgram((Part(term, 0.5, scale, shape),))
        (line,) = _skeleton(render_code(vocabulary, program))
        lines[line] = term
    return lines


def test_injections_name_their_component(source: PairSource, drawn: list[TrainingPair]) -> None:
    """A faithful injection announces its component in the sentence that the search remembers."""
    ideas = [
        found.idea
        for pair in drawn
        if pair.operator == INJECTION and not pair.spoiled
        if isinstance(found := parse(pair.response), Proposal)
    ]
    assert len(ideas) > 100
    names = {name for term in source.vocabulary.terms.values() for name in term.names}
    for idea in ideas:
        assert idea.count(COMPONENT_BEFORE) == idea.count(COMPONENT_AFTER) == 1
        announced = component(idea)
        assert announced is not None
        assert any(announced.endswith(name) for name in names)


def test_shares_are_met(source: PairSource, drawn: list[TrainingPair]) -> None:
    """Operators, planted defects and the seed heuristic come as often as they are meant to."""
    counts = Counter(pair.operator for pair in drawn)
    assert counts.keys() == set(CALM_OPERATORS)
    for operator in (INJECTION, CROSSOVER, REPLACEMENT):
        spoiled = np.mean([pair.spoiled for pair in drawn if pair.operator == operator])
        assert spoiled == pytest.approx(SHARES[operator], abs=0.07)
        assert counts[operator] / COUNT == pytest.approx(
            {INJECTION: 0.30, CROSSOVER: 0.28, REPLACEMENT: 0.25}[operator],
            abs=0.06,
        )
    seeds = np.mean([parent.program == source.seed for pair in drawn for parent in pair.parents])
    assert seeds == pytest.approx(SEED_SHARE, abs=0.03)


def test_parents_stand_best_first(source: PairSource, drawn: list[TrainingPair]) -> None:
    """Crossover has two parents, best first, creation none, every other operator one."""
    for pair in drawn:
        count = {CROSSOVER: 2, CREATION: 0}.get(pair.operator, 1)
        assert len(pair.parents) == count
        assert [parent.score for parent in pair.parents] == sorted(
            (parent.score for parent in pair.parents), reverse=True
        )


def test_held_out_prompts_show_held_out_parents_alone(source: PairSource) -> None:
    """A prompt for measuring shows no combination that training saw, and never the seed heuristic."""
    rng = np.random.default_rng(3)
    parents = [p for _ in range(200) for p in draw_prompt(source, rng, wanted_held_out=True)[3]]
    assert len(parents) > 150
    assert all(held_out(parent.program) for parent in parents)
    assert all(parent.code != source.problem.seed.code for parent in parents)


def test_spoiling_is_marked(source: PairSource, drawn: list[TrainingPair]) -> None:
    """An answer that is not marked as spoiled parses; of the others, those without idea or code do not."""
    assert all(isinstance(parse(pair.response), Proposal) for pair in drawn if not pair.spoiled)
    spoiled = [parse(pair.response) for pair in drawn if pair.spoiled]
    assert np.mean([isinstance(found, Proposal) for found in spoiled]) == pytest.approx(0.75, abs=0.05)


def test_problems_come_in_their_shares() -> None:
    """A mixture draws every problem as often as its share says."""
    shares = {"tsp": 0.5, "cvrp": 0.1, "obp": 0.4}
    pairs_drawn = itertools.islice(mixed_pairs(shares, SHARES, np.random.default_rng(0)), 1000)
    counts = Counter(pair.prompt.system.split(".")[0] for pair in pairs_drawn)
    for name, share in shares.items():
        assert counts[get_problem(name).title] / 1000 == pytest.approx(share, abs=0.04)


def test_recipes_name_problems() -> None:
    """A recipe's problems are looked up by name; an unknown or absent one is refused with the known names."""
    for wrong in (["tsp", "knapsack"], []):
        with pytest.raises(ConfigError, match="tsp"):
            sources(wrong)
