"""A grammar of scoring heuristics: a program is a weighted sum of named terms, and low sums are good.

The tables of a problem (its vocabulary, in ``grammar.toml``) say which terms exist, how code reads them and
what it returns; everything here is common to all problems, so that another problem is another table.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

_FILE = Path(__file__).with_suffix(".toml")
WEIGHTS = tuple(round(0.05 * k, 2) for k in range(1, 21))
FIXED = "fixed"
SCALES = (FIXED, "with", "against")
SHAPES = ("plain", "root", "square")
MAX_TERMS = 6
HELD_OUT_SHARE = 10


@dataclass(frozen=True)
class Term:
    """A feature of a choice: code that computes it, the locals it reads, and names a person would use.

    The code is one operand (a name, a call, a bracket) and gives numbers of zero or more, so that its root
    and its square can be written. ``sign`` is the share of positive weights that the grammar draws for it.
    """

    expression: str
    needs: tuple[str, ...]
    names: tuple[str, ...]
    sign: float


@dataclass(frozen=True)
class Scale:
    """What a term can be multiplied by: a factor in [0, 1], the locals it reads, and an adjective."""

    factor: str
    needs: tuple[str, ...]
    word: str


Exchange = tuple[str, str]


@dataclass(frozen=True)
class Slips:
    """How answers to one problem go wrong: text of a faithful program, and what stands there instead.

    ``mistakes`` fail when run, ``chance`` draws random numbers, ``usage`` is a line that calls the function.
    """

    mistakes: tuple[Exchange, ...]
    chance: tuple[Exchange, ...]
    usage: str


@dataclass(frozen=True)
class Vocabulary:
    """The terms of one problem and the frame of its function.

    ``locals`` are written in their order here, each only where something reads it. ``scores`` is the range
    of scores that parents in training prompts claim (higher is better).
    """

    opening_lines: tuple[str, ...]
    locals: Mapping[str, str]
    scales: Mapping[str, Scale]
    terms: Mapping[str, Term]
    anchor: str
    closing_line: str
    rules: tuple[str, ...]
    scores: tuple[float, float]
    slips: Slips


@dataclass(frozen=True)
class Part:
    """One weighted term of a program; ``name`` picks the words that ideas use for it."""

    term: str
    weight: float
    scale: str = FIXED
    shape: str = "plain"
    name: int = 0


@dataclass(frozen=True)
class GrammarProgram:
    """A heuristic as the grammar sees it; the first part is the anchor term."""

    parts: tuple[Part, ...]

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(part.term for part in self.parts)


def held_out(program: GrammarProgram) -> bool:
    """Whether this combination of terms, scales and shapes is kept out of training (one in ten)."""
    combination = sorted(f"{p.term}/{p.scale}/{p.shape}" for p in program.parts)
    return hashlib.sha256("+".join(combination).encode()).digest()[0] % HELD_OUT_SHARE == 0


def draw_weight(vocabulary: Vocabulary, term: str, rng: np.random.Generator) -> float:
    """A weight from the grid: large for the anchor, mostly small with the usual sign for the others."""
    if term == vocabulary.anchor:
        return WEIGHTS[int(rng.integers(7, len(WEIGHTS)))]
    size = WEIGHTS[int(min(rng.geometric(0.25) - 1, 13))]
    return size if rng.random() < vocabulary.terms[term].sign else -size


def draw_part(vocabulary: Vocabulary, term: str, rng: np.random.Generator) -> Part:
    """A weighted term; most are fixed and plain."""
    scale = SCALES[int(rng.choice(3, p=(0.7, 0.15, 0.15)))]
    shape = SHAPES[int(rng.choice(3, p=(0.8, 0.1, 0.1)))]
    name = int(rng.integers(len(vocabulary.terms[term].names)))
    return Part(term, draw_weight(vocabulary, term, rng), scale, shape, name)


def draw_program(vocabulary: Vocabulary, rng: np.random.Generator) -> GrammarProgram:
    """A program of the anchor and one to four other terms."""
    others = [term for term in vocabulary.terms if term != vocabulary.anchor]
    count = int(rng.integers(1, 5))
    chosen = rng.choice(len(others), size=count, replace=False)
    anchor = replace(draw_part(vocabulary, vocabulary.anchor, rng), scale=FIXED)
    return GrammarProgram((anchor, *(draw_part(vocabulary, others[int(i)], rng) for i in chosen)))


def _shaped(expression: str, shape: str) -> str:
    if shape == "root":
        return f"np.sqrt({expression})"
    if shape == "square":
        return f"{expression} ** 2"
    return expression


def _part_line(vocabulary: Vocabulary, part: Part, first: bool) -> str:
    # The weight stands last, so that a model which copies a term has its weight at hand.
    expression = _shaped(vocabulary.terms[part.term].expression, part.shape)
    factor = "" if part.scale == FIXED else f" * {vocabulary.scales[part.scale].factor}"
    return f"    score {'=' if first else '+='} {expression}{factor} * {part.weight:g}"


def _needs(vocabulary: Vocabulary, part: Part) -> tuple[str, ...]:
    scale = () if part.scale == FIXED else vocabulary.scales[part.scale].needs
    return vocabulary.terms[part.term].needs + scale


def render_code(vocabulary: Vocabulary, program: GrammarProgram) -> str:
    """The program as Python source; one line per term."""
    needed = {name for part in program.parts for name in _needs(vocabulary, part)}
    lines = [*vocabulary.opening_lines]
    lines += [line for name, line in vocabulary.locals.items() if name in needed]
    lines += [_part_line(vocabulary, part, first=i == 0) for i, part in enumerate(program.parts)]
    return "\n".join([*lines, vocabulary.closing_line])


class _Spoken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seed: tuple[Part, ...]
    vocabulary: Vocabulary


SPOKEN = {
    name: (spoken.vocabulary, GrammarProgram(spoken.seed))
    for name, spoken in msgspec.toml.decode(_FILE.read_bytes(), type=dict[str, _Spoken]).items()
}
"""The vocabulary of each problem that the grammar speaks, and its seed heuristic as a program."""
