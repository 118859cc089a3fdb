"""What each operator does to a program: the edit that a faithful answer to its prompt makes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from search_to_signal.corpus.grammar import (
    FIXED,
    MAX_TERMS,
    SCALES,
    SHAPES,
    WEIGHTS,
    GrammarProgram,
    Part,
    Vocabulary,
    draw_part,
    draw_program,
)
from search_to_signal.hosts.calm.operators import CROSSOVER, INJECTION, REPLACEMENT, SIMPLIFICATION
from search_to_signal.records.schema import Operator


def _pick(rng: np.random.Generator, count: int) -> int:
    return int(rng.integers(count))


def simplify(vocabulary: Vocabulary, program: GrammarProgram, rng: np.random.Generator) -> GrammarProgram:
    """Remove one term; a program of one term loses its scale and shape instead."""
    if len(program.parts) == 1:
        return GrammarProgram((replace(program.parts[0], scale=FIXED, shape="plain"),))
    gone = 1 + _pick(rng, len(program.parts) - 1)
    return GrammarProgram(program.parts[:gone] + program.parts[gone + 1 :])


def inject(vocabulary: Vocabulary, program: GrammarProgram, rng: np.random.Generator) -> GrammarProgram:
    """Add one term that the program lacks; a full program has its last term exchanged."""
    lacking = [term for term in vocabulary.terms if term not in program.terms]
    kept = program.parts[: MAX_TERMS - 1]
    return GrammarProgram((*kept, draw_part(vocabulary, lacking[_pick(rng, len(lacking))], rng)))


def _nudged(weight: float, rng: np.random.Generator) -> float:
    steps = int(rng.integers(1, 4)) * (1 if rng.random() < 0.5 else -1)
    size = round(abs(weight) + 0.05 * steps, 2)
    if not WEIGHTS[0] <= size <= WEIGHTS[-1]:
        size = round(abs(weight) - 0.05 * steps, 2)
    return size if weight > 0 else -size


def _other(choices: Sequence[str], current: str, rng: np.random.Generator) -> str:
    rest = [choice for choice in choices if choice != current]
    return rest[_pick(rng, len(rest))]


def rewrite(program: GrammarProgram, variant: int, rng: np.random.Generator) -> GrammarProgram:
    """Change the scale (variant 0), the weight (1) or the shape (2) of one term."""
    first = 1 if variant == 0 and len(program.parts) > 1 else 0
    at = first + _pick(rng, len(program.parts) - first)
    part = program.parts[at]
    if variant == 0:
        part = replace(part, scale=_other(SCALES, part.scale, rng))
    elif variant == 1:
        part = replace(part, weight=_nudged(part.weight, rng))
    else:
        part = replace(part, shape=_other(SHAPES, part.shape, rng))
    return GrammarProgram((*program.parts[:at], part, *program.parts[at + 1 :]))


def cross(first: GrammarProgram, second: GrammarProgram, rng: np.random.Generator) -> GrammarProgram:
    """Take the anchor of one parent and a random non-empty mixture of the other terms of both."""
    pool: dict[str, list[Part]] = {}
    for part in (*first.parts[1:], *second.parts[1:]):
        pool.setdefault(part.term, []).append(part)
    chosen = [parts[_pick(rng, len(parts))] for parts in pool.values() if rng.random() < 0.7]
    anchor = (first if rng.random() < 0.5 else second).parts[0]
    return GrammarProgram((anchor, *chosen[: MAX_TERMS - 1])) if chosen else GrammarProgram(first.parts[:2])


def apply(
    vocabulary: Vocabulary,
    operator: Operator,
    variant: int,
    parents: Sequence[GrammarProgram],
    rng: np.random.Generator,
) -> GrammarProgram:
    """The child that a faithful answer to the operator's prompt contains."""
    if operator == SIMPLIFICATION:
        return simplify(vocabulary, parents[0], rng)
    if operator == INJECTION:
        return inject(vocabulary, parents[0], rng)
    if operator == REPLACEMENT:
        return rewrite(parents[0], variant, rng)
    if operator == CROSSOVER:
        return cross(parents[0], parents[1], rng)
    return draw_program(vocabulary, rng)
