"""Parsing: points 1, 2, 5 and 20 of HOST.md, by example."""

import pytest

from search_to_signal.records.schema import BARE_FENCE, Outcome
from search_to_signal.sandbox.programs import (
    OPENING,
    Failure,
    Proposal,
    idea_span,
    mentions_randomness,
    parse,
)

IDEA = f"{OPENING} follow the nearest node."
BRACED = f"{{{{{IDEA}}}}}"
CODE = "def f(a):\n    return a"
BLOCK = f"```python\n{CODE}\n```"
INLINE = f"{IDEA} It is ```greedy``` and short, as in ```\nwhat follows."
DRAFT = f"{{{{{OPENING} go far away.}}}}{BLOCK}"
UNREASONED, UNCODED = Outcome.MISSING_RATIONALE, Outcome.MISSING_CODE

CASES: dict[str, tuple[str, Proposal | Outcome]] = {
    "the idea between braces, the code without surrounding blanks": (
        f"Sure.\n{BRACED}\n{BLOCK}",
        Proposal(IDEA, CODE),
    ),
    "a trailing blank stays in the idea": (f"{{{{{IDEA} }}}}{BLOCK}", Proposal(f"{IDEA} ", CODE)),
    "a leading one makes it no idea": (f"{{{{ {IDEA}}}}}{BLOCK}", UNREASONED),
    "a fence within a line does not end an idea": (f"{INLINE}\n{BLOCK}", Proposal(INLINE, CODE)),
    "behind the block the rest of the text": (f"{BLOCK}\n{IDEA}", Proposal(IDEA, CODE)),
    "braces without a partner do not count": (f"}}}} {{{{ {IDEA}\n{BLOCK}", Proposal(IDEA, CODE)),
    "the first double braces decide": (f"{{{{note}}}} {IDEA} {BLOCK}", UNREASONED),
    "nine characters behind the opening": (f"{{{{{OPENING} 23456789}}}}{BLOCK}", UNREASONED),
    "ten": (f"{{{{{OPENING} 234567890}}}}{BLOCK}", UNREASONED),
    "eleven": (f"{{{{{OPENING} 2345678901}}}}{BLOCK}", Proposal(f"{OPENING} 2345678901", CODE)),
    "rationale is judged before code": ("nothing", UNREASONED),
    "nothing at all": ("", UNREASONED),
    "no block": (BRACED, UNCODED),
    "an untagged block": (f"{BRACED}```\nx\n```", UNCODED),
    "a block of another tag": (f"{BRACED}```py\nx\n```", UNCODED),
    "a block that is not closed": (f"{BRACED}```python\nx", UNCODED),
    "a tag without a fence": (f"{BRACED}python\nx", UNCODED),
    "two backticks close nothing": (f"{BRACED}```python\na = '``'", UNCODED),
    "a tag in any case": (f"{BRACED}```PyThOn\nx = 1\n```", Proposal(IDEA, "x = 1")),
    "two blocks": (f"{BRACED}{BLOCK}{BLOCK}", Outcome.MISSING_FUNCTION),
    "an empty block is left to the worker": (f"{BRACED}```python```", Proposal(IDEA, "")),
    "a broken one, too": (f"{BRACED}```python\ndef (:\n```", Proposal(IDEA, "def (:")),
    "drafts in a thought are no answer": (f"<think>{DRAFT}</think>\n{BRACED}\n{BLOCK}", Proposal(IDEA, CODE)),
    "also where the prompt began the thought": (f"{DRAFT}</think>{BRACED}{BLOCK}", Proposal(IDEA, CODE)),
    "a thought that never ends": (f"<think>\n{BRACED}\n{BLOCK}", UNREASONED),
    "backticks within code": (f"{BRACED}```PyThon\n`` ` ``\n````", Proposal(IDEA, "`` ` ``")),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_completion_says(case: str) -> None:
    """Its idea and code, or the first failure in the host's order, with a reason."""
    text, expected = CASES[case]
    found = parse(text)
    assert (found.outcome if isinstance(found, Failure) else found) == expected
    assert isinstance(found, Proposal) or found.detail


def idea_of(text: str) -> str:
    span = idea_span(text)
    assert span is not None
    return text[slice(*span)].strip()


@pytest.mark.parametrize("fence", ["```", "```python", "````", "```py and more of the line", "```}}"])
def test_without_braces_the_idea_runs_from_the_opening_to_a_fence_that_begins_a_line(fence: str) -> None:
    """Three backticks behind a line break end it, whatever else is on their line; it is stripped (D37)."""
    text = f"Well: {IDEA} \r\n\n{fence}\nx = 1\n```\n"
    assert idea_of(text) == idea_of(f"{text}{BLOCK}") == IDEA


def test_the_reading_of_older_records_lets_a_tagged_fence_pass() -> None:
    """Under bare_fence an idea runs through the code that follows it, to a fence before a newline (D37)."""
    assert parse(f"{IDEA}\n{BLOCK}\nDone.", BARE_FENCE) == Proposal(f"{IDEA}\n```python\n{CODE}", CODE)
    assert parse(f"{IDEA}```\n{BLOCK}", BARE_FENCE) == Proposal(IDEA, CODE)
    short = f"{OPENING}\n{BLOCK}\nDone."
    assert isinstance(parse(short, BARE_FENCE), Proposal)
    assert isinstance(parse(short), Failure)


def test_the_word_random_counts_wherever_it_stands() -> None:
    """Imports, names and comments alike; the match minds case."""
    assert mentions_randomness("import random")
    assert mentions_randomness("x = 1  # no randomness here")
    assert not mentions_randomness("RANDOM = 4")
