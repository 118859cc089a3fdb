"""Each operator's edit does what its prompt asks for, and the grammar writes what it means."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from handmade_features import FEATURES, call
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.pairs import apply, cross, inject, name_part, render_idea, rewrite, simplify, sources
from search_to_signal.problems.grammar import (
    MAX_TERMS,
    SPOKEN,
    WEIGHTS,
    GrammarProgram,
    Part,
    Vocabulary,
    draw_part,
    draw_program,
    held_out,
    render_code,
)
from search_to_signal.records.schema import CALM_OPERATORS, Operator
from search_to_signal.sandbox.loading import function_of
from search_to_signal.sandbox.programs import OPENING
from search_to_signal.search.hosts.calm.prompts import (
    CREATION,
    CROSSOVER,
    INJECTION,
    REPLACEMENT,
    SIMPLIFICATION,
)

PROBLEMS = ("tsp", "cvrp", "obp", "op")
vocabularies = st.sampled_from([source.vocabulary for source in sources(PROBLEMS)])
generators = st.integers(0, 2**32).map(np.random.default_rng)
TSP, SEED = SPOKEN["tsp"]
TERMS = list(TSP.terms)
FULL = GrammarProgram(tuple(Part(term, 0.5) for term in TERMS[:MAX_TERMS]))
ONE = GrammarProgram((Part("step", 0.4, "with", "root"),))

each = settings(deadline=None, max_examples=60)


@given(vocabularies, generators)
@each
def test_drawn_programs_are_well_formed(vocabulary: Vocabulary, rng: np.random.Generator) -> None:
    """A program has its anchor first, fixed, and one to four other terms, none twice, weights on the grid."""
    program = draw_program(vocabulary, rng)
    assert program.terms[0] == vocabulary.anchor
    assert program.parts[0].scale == "fixed"
    assert 2 <= len(program.parts) <= 5
    assert len(set(program.terms)) == len(program.parts)
    assert all(abs(part.weight) in WEIGHTS for part in program.parts)


@given(vocabularies, generators)
@each
def test_simplification_removes_one_term(vocabulary: Vocabulary, rng: np.random.Generator) -> None:
    """The child is the parent without one term, never without its anchor."""
    parent = draw_program(vocabulary, rng)
    child = simplify(vocabulary, parent, rng)
    assert len(child.parts) == len(parent.parts) - 1
    assert child.parts[0] == parent.parts[0]
    assert [part for part in parent.parts if part in child.parts] == list(child.parts)


def test_simplification_of_one_term_makes_it_plain() -> None:
    """A program of one term keeps it, without its scale and shape."""
    assert simplify(TSP, ONE, np.random.default_rng(0)) == GrammarProgram((Part("step", 0.4),))


@given(vocabularies, generators)
@each
def test_injection_adds_a_term_that_was_lacking(vocabulary: Vocabulary, rng: np.random.Generator) -> None:
    """The child is the parent with one new term at its end; a full program gives its last term for it."""
    full = GrammarProgram(tuple(Part(term, 0.5) for term in list(vocabulary.terms)[:MAX_TERMS]))
    for parent in (draw_program(vocabulary, rng), full):
        child = inject(vocabulary, parent, rng)
        assert child.parts[:-1] == parent.parts[: MAX_TERMS - 1]
        assert child.terms[-1] not in parent.terms
        assert len(child.parts) <= MAX_TERMS


@pytest.mark.parametrize(("variant", "what"), [(0, "scale"), (1, "weight"), (2, "shape")])
@given(vocabulary=vocabularies, rng=generators)
@each
def test_replacement_rewrites_one_thing(
    variant: int, what: str, vocabulary: Vocabulary, rng: np.random.Generator
) -> None:
    """One term changes, in the one respect that the prompt's variant names."""
    parent = draw_program(vocabulary, rng)
    child = rewrite(parent, variant, rng)
    changed = [(old, new) for old, new in zip(parent.parts, child.parts, strict=True) if old != new]
    assert len(changed) == 1
    ((old, new),) = changed
    assert replace(old, **{what: getattr(new, what)}) == new
    assert child.parts[0].scale == "fixed"


@given(generators, st.sampled_from(WEIGHTS), st.sampled_from((1, -1)))
@each
def test_new_weights_stay_on_the_grid(rng: np.random.Generator, size: float, sign: int) -> None:
    """A rewritten weight differs, keeps its sign, stays on the grid and moves by at most three steps."""
    (part,) = rewrite(GrammarProgram((Part("step", sign * size),)), 1, rng).parts
    assert abs(part.weight) in WEIGHTS
    assert part.weight != sign * size
    assert math.copysign(1, part.weight) == sign
    assert abs(abs(part.weight) - size) < 0.16


@given(vocabularies, generators)
@each
def test_crossover_mixes_both_parents(vocabulary: Vocabulary, rng: np.random.Generator) -> None:
    """The child has one parent's anchor and other terms of both, none twice, none of its own making."""
    first, second = draw_program(vocabulary, rng), draw_program(vocabulary, rng)
    child = cross(first, second, rng)
    assert child.parts[0] in (first.parts[0], second.parts[0])
    assert 2 <= len(child.parts) <= MAX_TERMS
    assert set(child.parts[1:]) <= {*first.parts[1:], *second.parts[1:]}
    assert len(set(child.terms)) == len(child.parts)


def test_crossover_takes_from_either_parent() -> None:
    """Over many draws a child holds terms that only the first has, and terms that only the second has."""
    first = GrammarProgram((Part("step", 0.4), Part("mean", 0.1), Part("home", 0.2)))
    second = GrammarProgram((Part("step", 0.8), Part("trip", 0.1), Part("ring", 0.2)))
    rng = np.random.default_rng(0)
    children = [cross(first, second, rng) for _ in range(40)]
    assert {part.weight for child in children for part in child.parts[:1]} == {0.4, 0.8}
    both = [c for c in children if {"mean", "home"} & set(c.terms) and {"trip", "ring"} & set(c.terms)]
    assert len(both) > 20


def test_apply_follows_the_operator() -> None:
    """Each operator leads to its own edit; creation needs no parent."""
    edits: dict[Operator, Callable[[np.random.Generator], GrammarProgram]] = {
        SIMPLIFICATION: lambda rng: simplify(TSP, SEED, rng),
        INJECTION: lambda rng: inject(TSP, SEED, rng),
        REPLACEMENT: lambda rng: rewrite(SEED, 2, rng),
        CROSSOVER: lambda rng: cross(SEED, FULL, rng),
        CREATION: lambda rng: draw_program(TSP, rng),
    }
    assert set(edits) == set(CALM_OPERATORS)
    for operator, edit in edits.items():
        parents = () if operator == CREATION else (SEED, FULL)
        found = apply(TSP, operator, 2, parents, np.random.default_rng(4))
        assert found == edit(np.random.default_rng(4))


def test_held_out_looks_at_the_combination_alone() -> None:
    """Order, weights and names do not decide whether a combination is held out; about a tenth is."""
    rng = np.random.default_rng(0)
    programs = [draw_program(TSP, rng) for _ in range(3000)]
    for program in programs[:200]:
        turned = tuple(replace(part, weight=0.05, name=0) for part in reversed(program.parts))
        assert held_out(GrammarProgram(turned)) is held_out(program)
    assert 0.08 < np.mean([held_out(program) for program in programs]) < 0.12


@given(vocabularies, generators)
@each
def test_ideas_name_every_term(vocabulary: Vocabulary, rng: np.random.Generator) -> None:
    """An idea opens as prompts ask and names every term with the sign of its weight."""
    program = draw_program(vocabulary, rng)
    idea = render_idea(vocabulary, program, rng)
    assert idea.startswith(f"{OPENING} ")
    assert idea.endswith(".")
    for part in program.parts[1:]:
        assert f" {'plus' if part.weight > 0 else 'less'} the {name_part(vocabulary, part)}" in idea


@pytest.mark.parametrize("problem", PROBLEMS)
@given(rng=generators)
@each
def test_code_computes_the_weighted_sum(problem: str, rng: np.random.Generator) -> None:
    """The rendered function sums the terms that its program names, each by a formula written by hand."""
    vocabulary = sources([problem])[0].vocabulary
    others = [name for name in vocabulary.terms if name != vocabulary.anchor]
    names = [vocabulary.anchor, *(str(name) for name in rng.permutation(others))]
    program = GrammarProgram(tuple(draw_part(vocabulary, name, rng) for name in names))
    arguments = call(problem, rng)
    features = {"*fixed": 1.0, **FEATURES[problem](*arguments)}
    powers = {"plain": 1.0, "root": 0.5, "square": 2.0}
    expected = sum(
        p.weight * features[f"*{p.scale}"] * features[p.term] ** powers[p.shape] for p in program.parts
    )
    scored = function_of(render_code(replace(vocabulary, closing_line="    return score"), program))
    np.testing.assert_allclose(scored(*arguments), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_low_sums_are_good(problem: str) -> None:
    """The function answers so that the choice of the lowest sum is the one that the host prefers."""
    vocabulary, rng = sources([problem])[0].vocabulary, np.random.default_rng(1)
    program = draw_program(vocabulary, rng)
    arguments = call(problem, rng)
    answer = function_of(render_code(vocabulary, program))(*arguments)
    score = function_of(render_code(replace(vocabulary, closing_line="    return score"), program))(
        *arguments
    )
    best = sorted(arguments[2])[score.argmin()] if problem == "tsp" else score.argmin()
    assert best == (answer if problem == "tsp" else answer.argmax())
