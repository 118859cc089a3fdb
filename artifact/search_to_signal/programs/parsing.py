"""Completion text to a proposal or a typed failure, by its text alone (HOST.md, points 1, 2, 5, 20)."""

import re
from dataclasses import dataclass

from search_to_signal.programs.markers import OPENING
from search_to_signal.records.schema import ANY_FENCE, BARE_FENCE, IdeaEnd, Outcome

__all__ = ["OPENING", "Failure", "Proposal", "mentions_randomness", "parse"]

Span = tuple[int, int]

_FEWEST_CHARACTERS = 10
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


def idea_span(text: str, idea_end: IdeaEnd = ANY_FENCE) -> Span | None:
    """Where the idea stands: between the first double braces.

    Failing those, from the opening phrase to what ``idea_end`` names, or to the end (HOST.md, points 1 and
    20).
    """
    start = text.find("{{")
    end = text.find("}}", start + 2) if start >= 0 else -1
    if end >= 0:
        return start + 2, end
    start = text.find(OPENING)
    if start < 0:
        return None
    end = text.find(_IDEA_END[idea_end], start)
    return start, len(text) if end < 0 else end


def code_spans(text: str) -> tuple[Span, ...]:
    """Where the fenced python blocks stand, without their fences; a proposal has exactly one."""
    return tuple(block.span(1) for block in _PYTHON_BLOCK.finditer(text))


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
    blocks = _PYTHON_BLOCK.findall(text)
    if not blocks:
        return Failure(Outcome.MISSING_CODE, "no fenced block tagged python")
    if len(blocks) > 1:
        return Failure(Outcome.MISSING_FUNCTION, f"{len(blocks)} fenced python blocks instead of one")
    return Proposal(idea=idea, code=blocks[0].strip())


def mentions_randomness(code: str) -> bool:
    """Whether the text ``random`` occurs anywhere, comments included (HOST.md, point 5; D20)."""
    return "random" in code
