"""Completion text to a proposal or a typed failure, its canonical form, and which tokens are its program."""

import ast
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, dropwhile
from typing import Literal

from search_to_signal.records.schema import ANY_FENCE, BARE_FENCE, IdeaEnd, Outcome

# The canonical form of code: two programs that differ in layout, comments or docstrings are one.

# CPython's parser overflows the C stack on chains of some 100,000 operators. Unparsing recurses in
# Python, so without a depth limit its success would depend on how deep the caller already is.
_MOST_CHARACTERS = 50_000
_DEEPEST = 100
_NUMBER = re.compile(r"(?<![\w.])(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[^\W\d]\w*")
_STRINGS_AND_COMMENTS = re.compile(
    r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*'
)


def _is_bare_string(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _drop_docstring(node: ast.AST) -> None:
    """Drop every leading string: dropping only the first would make a docstring of the second."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        body = list(dropwhile(_is_bare_string, node.body))
        node.body = body if body or isinstance(node, ast.Module) else [ast.Pass()]


def canonical(code: str) -> str:
    """Return ``code`` without layout, comments and docstrings; names stay as they are.

    Code that does not parse, or is too long or too deep to parse safely, is only stripped. Never raises
    on any text.
    """
    text = code.strip()
    if len(text) > _MOST_CHARACTERS:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        # The nodes of a tree by depth, without recursion.
        levels: list[list[ast.AST]] = [[tree]]
        while levels[-1]:
            levels.append([child for node in levels[-1] for child in ast.iter_child_nodes(node)])
        if len(levels) > _DEEPEST:
            return text
        for node in chain.from_iterable(levels):
            _drop_docstring(node)
        return ast.unparse(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text


def differ_in_numbers(first: str, second: str) -> bool:
    """Whether two programs are one when every number in their canonical forms is written as 0."""
    # Canonical forms take long, and programs of other names are told apart without.
    return _words(first) == _words(second) and without_numbers(first) == without_numbers(second)


# A heuristic is compared with all its parents, and with all its children.
@lru_cache(1 << 12)
def _words(code: str) -> list[str]:
    return _WORD.findall(_NUMBER.sub("", _STRINGS_AND_COMMENTS.sub("", code)))


@lru_cache(1 << 12)
def without_numbers(code: str) -> str:
    """The canonical form with every number written as 0."""
    return _NUMBER.sub("0", canonical(code))


def sha256_text(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes; lone surrogates, which a tokenizer can emit, stay as they are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def program_sha256(code: str) -> str:
    """SHA-256 of the canonical form."""
    return sha256_text(canonical(code))


# The markers that prompts ask for and that parsing relies on (HOST.md, points 1 and 15).

OPENING = "The idea of the algorithm is to"
COMPONENT_BEFORE = "The new component"
COMPONENT_AFTER = "has been introduced"

ANSWER_RULES = (
    f'State the idea between double braces, starting with "{OPENING}". Then give one Python function in one '
    "python code block. It is deterministic. Answer nothing else."
)
"""What an answer has to look like to be parsed, in words for any prompt."""


# Completion text to a proposal or a typed failure, by its text alone (HOST.md, points 1, 2, 5, 20).

__all__ = ["OPENING", "Failure", "Proposal", "mentions_randomness", "parse"]

Span = tuple[int, int]

_FEWEST_CHARACTERS = 10
_THOUGHT = ("<think>", "</think>")
_IDEA_END: dict[IdeaEnd, str] = {ANY_FENCE: "\n```", BARE_FENCE: "```\n"}
# Only the last opening can lack a closing fence, because the next opening closes it: linear time.
# Text without backticks is skipped whole, which takes a sixth of the time of ``.*?``.
_PYTHON_BLOCK = re.compile(r"```(?i:python)([^`]*(?:`(?!``)[^`]*)*)```")


@dataclass(frozen=True)
class Proposal:
    """An idea, as written, and the stripped text of the one python block."""

    idea: str
    code: str


@dataclass(frozen=True)
class Failure:
    """Why a completion is no proposal; ``detail`` is for people."""

    outcome: Outcome
    detail: str


def _answer_start(text: str) -> int:
    """Where the answer of a model that thinks first begins: behind its thought, which may not have ended."""
    end = text.rfind(_THOUGHT[1])
    if end >= 0:
        return end + len(_THOUGHT[1])
    return len(text) if text.lstrip().startswith(_THOUGHT[0]) else 0


def idea_span(text: str, idea_end: IdeaEnd = ANY_FENCE) -> Span | None:
    """Where the idea stands in an answer: between the first double braces.

    Failing those, from the opening phrase to what ``idea_end`` names, or to the end (HOST.md, points 1 and
    20).
    """
    answer = _answer_start(text)
    start = text.find("{{", answer)
    end = text.find("}}", start + 2) if start >= 0 else -1
    if end >= 0:
        return start + 2, end
    start = text.find(OPENING, answer)
    if start < 0:
        return None
    end = text.find(_IDEA_END[idea_end], start)
    return start, len(text) if end < 0 else end


def code_spans(text: str) -> tuple[Span, ...]:
    """Where the fenced python blocks stand, without their fences; a proposal has exactly one."""
    return tuple(block.span(1) for block in _PYTHON_BLOCK.finditer(text, _answer_start(text)))


def _stated_idea(text: str, idea_end: IdeaEnd) -> str | None:
    """The idea as it stands between braces, and stripped where there are none."""
    span = idea_span(text, idea_end)
    if span is None:
        return None
    braced = text[: span[0]].endswith("{{") and text.startswith("}}", span[1])
    idea = text[slice(*span)]
    return idea if braced else idea.strip()


def _rationale_fault(idea: str | None) -> str | None:
    if idea is None:
        return "no double braces and no opening phrase"
    if not idea.startswith(OPENING):
        return f"the idea does not start with {OPENING!r}"
    if len(idea) - len(OPENING) <= _FEWEST_CHARACTERS:
        return f"at most {_FEWEST_CHARACTERS} characters follow the opening phrase"
    return None


def parse(text: str, idea_end: IdeaEnd = ANY_FENCE) -> Proposal | Failure:
    """Return the proposal that a completion makes, or the first failure in the order of D04.

    ``idea_end`` is the setting of the run that the completion belongs to; by default the host's own.

    Decides missing rationale, missing code, and missing function for several blocks. Whether the one
    block defines exactly one function takes executing it, which only the isolated worker may do.
    Linear in the length of the text; never raises.
    """
    idea = _stated_idea(text, idea_end)
    fault = _rationale_fault(idea)
    if idea is None or fault is not None:
        return Failure(Outcome.MISSING_RATIONALE, fault or "")
    blocks = _PYTHON_BLOCK.findall(text, _answer_start(text))
    if not blocks:
        return Failure(Outcome.MISSING_CODE, "no fenced block tagged python")
    if len(blocks) > 1:
        return Failure(Outcome.MISSING_FUNCTION, f"{len(blocks)} fenced python blocks instead of one")
    return Proposal(idea=idea, code=blocks[0].strip())


def mentions_randomness(code: str) -> bool:
    """Whether the text ``random`` occurs anywhere, comments included (HOST.md, point 5; D20)."""
    return "random" in code


# Which tokens of a completion are its rationale and which its program, by what the parser reads (D43).

Part = Literal["both", "rationale", "code"]

Decode = Callable[[Sequence[int]], str]
"""The text of token ids, as a completion's text was made of them."""


def part_spans(text: str, part: Part, idea_end: IdeaEnd = ANY_FENCE) -> tuple[Span, ...]:
    """The characters of a part, first and one past the last; empty where the text lacks it.

    A part counts wherever the parser finds it, also in a completion that is no proposal.
    """
    if part == "both":
        return ((0, len(text)),)
    if part == "code":
        return code_spans(text)
    span = idea_span(text, idea_end)
    return () if span is None else (span,)


def part_tokens(
    ids: Sequence[int], part: Part, decode: Decode, idea_end: IdeaEnd = ANY_FENCE
) -> tuple[bool, ...]:
    """Of each token whether it belongs to a part: whether a character of it is the token's. ``both``: all do.

    Of a character in several tokens each has it. The end token adds no text and is of neither part.
    """
    if part == "both":
        return (True,) * len(ids)
    spans = part_spans(decode(ids), part, idea_end)
    return tuple(
        any(max(start, first) < min(end, last) for first, last in spans)
        for start, end in _characters(ids, decode)
    )


def _characters(ids: Sequence[int], decode: Decode) -> Iterator[tuple[int, int]]:
    """The characters of the text that each token has a share in, first and one past the last."""
    start = 0
    for count in range(len(ids)):
        text = decode(ids[: count + 1])
        yield start, len(text)
        # Bytes that end no character yet show as signs that a later token replaces.
        start = len(text.rstrip("\ufffd"))
