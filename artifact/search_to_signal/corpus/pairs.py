"""Prompt-response pairs: what a faithful, a spoiled and a held-out example look like, and a mix of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search_to_signal.corpus import cvrp, obp, op, tsp
from search_to_signal.corpus.defects import Answer, spoil, write
from search_to_signal.corpus.edits import apply
from search_to_signal.corpus.grammar import (
    GrammarProgram,
    Vocabulary,
    draw_program,
    held_out,
    name_part,
    render_code,
    render_idea,
)
from search_to_signal.errors import ConfigError
from search_to_signal.hosts.calm.operators import CREATION, CROSSOVER, INJECTION
from search_to_signal.hosts.calm.prompts import REPLACEMENT_VARIANTS, build_prompt
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import Problem
from search_to_signal.programs.markers import COMPONENT_AFTER, COMPONENT_BEFORE
from search_to_signal.records.abilities import CALM_OPERATORS
from search_to_signal.records.schema import Operator
from search_to_signal.search.prompt import Prompt

SEED_SHARE = 0.15
_OPERATOR_SHARES = (0.15, 0.3, 0.25, 0.28, 0.02)


@dataclass(frozen=True)
class PairSource:
    """Where pairs come from: a problem, its vocabulary, and its seed heuristic as a program."""

    problem: Problem
    vocabulary: Vocabulary
    seed: GrammarProgram


@dataclass(frozen=True)
class ShownParent:
    """A heuristic shown in a prompt, together with the program behind it."""

    idea: str
    code: str
    score: float
    program: GrammarProgram


@dataclass(frozen=True)
class TrainingPair:
    """One training example; ``spoiled`` says whether its response carries a planted defect."""

    prompt: Prompt
    response: str
    operator: Operator
    parents: tuple[ShownParent, ...]
    spoiled: bool


def _mention(idea: str, component: str) -> str:
    return f"{idea} {COMPONENT_BEFORE} {component} {COMPONENT_AFTER}."


def _parent(source: PairSource, rng: np.random.Generator, *, wanted_held_out: bool) -> ShownParent:
    score = float(rng.uniform(*source.vocabulary.scores))
    if not wanted_held_out and rng.random() < SEED_SHARE:
        return ShownParent(source.problem.seed.idea, source.problem.seed.code, score, source.seed)
    program = draw_program(source.vocabulary, rng)
    while held_out(program) is not wanted_held_out:
        program = draw_program(source.vocabulary, rng)
    idea = render_idea(source.vocabulary, program, rng)
    if rng.random() < 0.25:
        idea = _mention(idea, name_part(source.vocabulary, program.parts[-1]))
    return ShownParent(idea, render_code(source.vocabulary, program), score, program)


def _injected(source: PairSource, rng: np.random.Generator) -> list[str]:
    names = [name for term in source.vocabulary.terms.values() for name in term.names]
    return [names[int(i)] for i in rng.permutation(len(names))[: int(rng.integers(0, 11))]]


def _answer(
    source: PairSource, operator: Operator, child: GrammarProgram, rng: np.random.Generator
) -> Answer:
    idea = render_idea(source.vocabulary, child, rng)
    if operator == INJECTION:
        idea = _mention(idea, name_part(source.vocabulary, child.parts[-1]))
    return Answer(idea, render_code(source.vocabulary, child))


def draw_prompt(
    source: PairSource, rng: np.random.Generator, *, wanted_held_out: bool = False
) -> tuple[Prompt, Operator, int, tuple[ShownParent, ...]]:
    """A prompt as the search would show it, from parents inside or outside the held-out combinations."""
    operator = CALM_OPERATORS[int(rng.choice(len(CALM_OPERATORS), p=_OPERATOR_SHARES))]
    variant = int(rng.integers(REPLACEMENT_VARIANTS))
    count = {CROSSOVER: 2, CREATION: 0}.get(operator, 1)
    drawn = [_parent(source, rng, wanted_held_out=wanted_held_out) for _ in range(count)]
    parents = tuple(sorted(drawn, key=lambda parent: parent.score, reverse=True))
    injected = _injected(source, rng) if operator == INJECTION else ()
    prompt = build_prompt(source.problem, operator, parents, variant=variant, injected=injected)
    return prompt, operator, variant, parents


def draw_pair(
    source: PairSource, defect_shares: Mapping[str, float], rng: np.random.Generator
) -> TrainingPair | None:
    """A prompt with an answer that follows its operator, spoiled with the operator's defect share.

    None when the drawn child is a held-out combination: some parents have no other child.
    """
    prompt, operator, variant, parents = draw_prompt(source, rng)
    child = apply(source.vocabulary, operator, variant, [parent.program for parent in parents], rng)
    if held_out(child):
        return None
    answer = _answer(source, operator, child, rng)
    spoiled = bool(rng.random() < defect_shares[operator])
    response = spoil(answer, source.vocabulary.slips, rng) if spoiled else write(answer)
    return TrainingPair(prompt, response, operator, parents, spoiled)


def pairs(
    source: PairSource, defect_shares: Mapping[str, float], rng: np.random.Generator
) -> Iterator[TrainingPair]:
    """An endless stream of training pairs."""
    while True:
        pair = draw_pair(source, defect_shares, rng)
        if pair is not None:
            yield pair


_TABLES = {
    "tsp": (tsp.TSP, tsp.SEED),
    "cvrp": (cvrp.CVRP, cvrp.SEED),
    "obp": (obp.OBP, obp.SEED),
    "op": (op.OP, op.SEED),
}


def sources(problems: Sequence[str]) -> tuple[PairSource, ...]:
    """The corpus sources of the named problems; raises ConfigError for one that the grammar lacks."""
    unknown = sorted(set(problems) - set(_TABLES))
    if unknown or not problems:
        raise ConfigError(
            f"the grammar has no vocabulary for {', '.join(unknown) or 'an empty list'}: "
            f"choose from {', '.join(sorted(_TABLES))}"
        )
    return tuple(PairSource(get_problem(name), *_TABLES[name]) for name in problems)


def mixed_pairs(
    shares: Mapping[str, float], defect_shares: Mapping[str, float], rng: np.random.Generator
) -> Iterator[TrainingPair]:
    """An endless stream of pairs; ``shares`` says how much of it each problem gets, and sums to 1."""
    streams = [pairs(source, defect_shares, rng) for source in sources(list(shares))]
    while True:
        yield next(streams[int(rng.choice(len(streams), p=list(shares.values())))])
