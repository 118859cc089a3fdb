"""Prompt-response pairs: what a faithful, a spoiled and a held-out example look like, and a mix of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from search_to_signal.base.errors import ConfigError
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import Problem
from search_to_signal.problems.grammar import (
    FIXED,
    MAX_TERMS,
    SCALES,
    SHAPES,
    SPOKEN,
    WEIGHTS,
    Exchange,
    GrammarProgram,
    Part,
    Slips,
    Vocabulary,
    draw_part,
    draw_program,
    held_out,
    render_code,
)
from search_to_signal.records.schema import CALM_OPERATORS, Operator, Outcome
from search_to_signal.sandbox.programs import COMPONENT_AFTER, COMPONENT_BEFORE, OPENING
from search_to_signal.search.hosts.calm.prompts import (
    CREATION,
    CROSSOVER,
    INJECTION,
    REPLACEMENT,
    REPLACEMENT_VARIANTS,
    SIMPLIFICATION,
    build_prompt,
)
from search_to_signal.search.member import Prompt

# Programs in words.

_SHAPE_WORDS = {"plain": "", "root": "rooted ", "square": "squared "}


def name_part(vocabulary: Vocabulary, part: Part) -> str:
    """Words for one weighted term, as an idea mentions it."""
    scale = "" if part.scale == FIXED else f"{vocabulary.scales[part.scale].word} "
    return f"{scale}{_SHAPE_WORDS[part.shape]}{vocabulary.terms[part.term].names[part.name]}"


def render_idea(vocabulary: Vocabulary, program: GrammarProgram, rng: np.random.Generator) -> str:
    """One sentence that names every term of the program."""
    rule = vocabulary.rules[int(rng.integers(len(vocabulary.rules)))]
    words = f"the {name_part(vocabulary, program.parts[0])}"
    for part in program.parts[1:]:
        words += f" {'plus' if part.weight > 0 else 'less'} the {name_part(vocabulary, part)}"
    return f"{OPENING} {rule} {words}."


# Realistic defects: how a small model's answers go wrong, one family per typed failure.


@dataclass(frozen=True)
class Answer:
    """The two parts of an answer before it is written down."""

    idea: str
    code: str


Defect = Callable[[Answer], str]

_FORM = "{{{{{idea}}}}}\n```python\n{code}\n```"
_NO_IDEA = "```python\n{code}\n```"
_IDEA_ONLY = "{{{{{idea}}}}}"
_UNTAGGED_FENCE = "{{{{{idea}}}}}\n```\n{code}\n```"


def write(answer: Answer) -> str:
    """The answer in the form that prompts ask for."""
    return _laid_out(_FORM, answer)


def _exchanged(exchange: Exchange, answer: Answer) -> str:
    return write(Answer(answer.idea, answer.code.replace(*exchange, 1)))


def _other_opening(answer: Answer) -> str:
    return write(Answer(answer.idea.replace(OPENING, "This algorithm aims to"), answer.code))


def _idea_as_comment(answer: Answer) -> str:
    words = answer.idea.removeprefix(OPENING).strip()
    return f"```python\n# {words}\n{answer.code}\n```"


def _laid_out(form: str, answer: Answer) -> str:
    return form.format(idea=answer.idea, code=answer.code)


def _unclosed_bracket(answer: Answer) -> str:
    before, _, after = answer.code.rpartition(")")
    return write(Answer(answer.idea, before + after))


def _usage_example(usage: str, answer: Answer) -> str:
    return write(Answer(answer.idea, f"{answer.code}\n\n{usage}"))


_MISSING_COLON = ("):\n", ")\n")
_TWO_FUNCTIONS = ("def ", "def normalize(values):\n    return values / values.max()\n\ndef ")
_UNDEFINED_NAME = ("    score =", "    score = bias +")
_NOISE = ("    return", "    score += 0.01 * np.random.rand(*score.shape)\n    return")


def defects(slips: Slips) -> Mapping[Outcome, tuple[Defect, ...]]:
    """Every defect of a problem's answers, by the typed failure that it ends in."""

    def exchanges(*pairs: Exchange) -> tuple[Defect, ...]:
        return tuple(partial(_exchanged, pair) for pair in pairs)

    return {
        Outcome.MISSING_RATIONALE: (_other_opening, partial(_laid_out, _NO_IDEA), _idea_as_comment),
        Outcome.MISSING_CODE: (partial(_laid_out, _IDEA_ONLY), partial(_laid_out, _UNTAGGED_FENCE)),
        Outcome.MISSING_FUNCTION: (
            _unclosed_bracket,
            partial(_usage_example, slips.usage),
            *exchanges(_MISSING_COLON, _TWO_FUNCTIONS),
        ),
        Outcome.RUNTIME_FAILURE: exchanges(_UNDEFINED_NAME, *slips.mistakes),
        Outcome.RANDOMNESS: exchanges(_NOISE, *slips.chance),
    }


FAMILY_SHARES: Mapping[Outcome, float] = {
    Outcome.MISSING_RATIONALE: 0.15,
    Outcome.MISSING_CODE: 0.10,
    Outcome.MISSING_FUNCTION: 0.25,
    Outcome.RUNTIME_FAILURE: 0.35,
    Outcome.RANDOMNESS: 0.15,
}


def spoil(answer: Answer, slips: Slips, rng: np.random.Generator) -> str:
    """Write the answer down with one defect, its family drawn by FAMILY_SHARES."""
    families = list(FAMILY_SHARES)
    family = families[int(rng.choice(len(families), p=list(FAMILY_SHARES.values())))]
    choices = defects(slips)[family]
    return choices[int(rng.integers(len(choices)))](answer)


# What each operator does to a program: the edit that a faithful answer to its prompt makes.


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


def sources(problems: Sequence[str]) -> tuple[PairSource, ...]:
    """The corpus sources of the named problems; raises ConfigError for one that the grammar lacks."""
    unknown = sorted(set(problems) - set(SPOKEN))
    if unknown or not problems:
        raise ConfigError(
            f"the grammar has no vocabulary for {', '.join(unknown) or 'an empty list'}: "
            f"choose from {', '.join(sorted(SPOKEN))}"
        )
    return tuple(PairSource(get_problem(name), *SPOKEN[name]) for name in problems)


def mixed_pairs(
    shares: Mapping[str, float], defect_shares: Mapping[str, float], rng: np.random.Generator
) -> Iterator[TrainingPair]:
    """An endless stream of pairs; ``shares`` says how much of it each problem gets, and sums to 1."""
    streams = [pairs(source, defect_shares, rng) for source in sources(list(shares))]
    while True:
        yield next(streams[int(rng.choice(len(streams), p=list(shares.values())))])
