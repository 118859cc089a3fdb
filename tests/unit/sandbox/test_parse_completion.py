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
BLOCK = "```python\ndef f(a):\n    return a\n```"


def outcome_of(text: str) -> Outcome:
    result = parse(text)
    assert isinstance(result, Failure)
    assert result.detail
    return result.outcome


def idea_of(text: str) -> str:
    span = idea_span(text)
    assert span is not None
    return text[slice(*span)].strip()


def test_a_whole_completion_gives_idea_and_stripped_code() -> None:
    """The idea is what stands between the braces, the code is the block without surrounding blanks."""
    assert parse(f"Sure.\n{{{{{IDEA}}}}}\n{BLOCK}") == Proposal(IDEA, "def f(a):\n    return a")


def test_the_idea_is_not_stripped() -> None:
    """A trailing blank stays in the idea, and a leading one makes it no idea."""
    assert parse(f"{{{{{IDEA} }}}}{BLOCK}") == Proposal(IDEA + " ", "def f(a):\n    return a")
    assert outcome_of(f"{{{{ {IDEA}}}}}{BLOCK}") is Outcome.MISSING_RATIONALE


@pytest.mark.parametrize("fence", ["```", "```python", "````", "```py and more of the line", "```}}"])
def test_without_braces_the_idea_runs_from_the_opening_to_a_fence_that_begins_a_line(fence: str) -> None:
    """Three backticks behind a line break end it, whatever else is on their line; it is stripped (D37)."""
    text = f"Well: {IDEA} \r\n\n{fence}\nx = 1\n```\n"
    assert idea_of(text) == idea_of(f"{text}{BLOCK}") == IDEA


def test_without_braces_a_fence_within_a_line_does_not_end_the_idea() -> None:
    """Neither backticks amid a line, nor a fence at the end of one."""
    code = "def f(a):\n    return a"
    inline = f"{IDEA} It is ```greedy``` and short, as in ```\nwhat follows."
    assert parse(f"{inline}\n{BLOCK}") == Proposal(inline, code)


def test_the_reading_of_older_records_lets_a_tagged_fence_pass() -> None:
    """Under bare_fence an idea runs through the code that follows it, to a fence before a newline (D37)."""
    code = "def f(a):\n    return a"
    assert parse(f"{IDEA}\n{BLOCK}\nDone.", BARE_FENCE) == Proposal(f"{IDEA}\n```python\n{code}", code)
    assert parse(f"{IDEA}```\n{BLOCK}", BARE_FENCE) == Proposal(IDEA, code)
    short = f"{OPENING}\n{BLOCK}\nDone."
    assert isinstance(parse(short, BARE_FENCE), Proposal)
    assert outcome_of(short) is Outcome.MISSING_RATIONALE


def test_without_braces_and_fence_the_idea_runs_to_the_end() -> None:
    """A code block ahead of the idea leaves the fallback the rest of the text."""
    assert parse(f"{BLOCK}\n{IDEA}") == Proposal(IDEA, "def f(a):\n    return a")


def test_braces_without_a_partner_do_not_count() -> None:
    """An opening pair of braces with no closing pair after it leaves the fallback in charge."""
    assert parse(f"}}}} {{{{ {IDEA}\n{BLOCK}") == Proposal(IDEA, "def f(a):\n    return a")


def test_other_braces_come_first() -> None:
    """The first double braces decide, even when an opening phrase stands elsewhere."""
    assert outcome_of(f"{{{{note}}}} {IDEA} {BLOCK}") is Outcome.MISSING_RATIONALE


@pytest.mark.parametrize(
    ("tail", "accepted"), [(" 23456789", False), (" 234567890", False), (" 2345678901", True)]
)
def test_more_than_ten_characters_follow_the_opening(tail: str, accepted: bool) -> None:
    """Ten characters after the phrase are too few, eleven are enough."""
    assert isinstance(parse(f"{{{{{OPENING}{tail}}}}}{BLOCK}"), Proposal) is accepted


def test_rationale_is_judged_before_code() -> None:
    """A completion with neither idea nor code lacks the rationale."""
    assert outcome_of("nothing") is Outcome.MISSING_RATIONALE
    assert outcome_of("") is Outcome.MISSING_RATIONALE


@pytest.mark.parametrize("block", ["", "```\nx\n```", "```py\nx\n```", "```python\nx", "python\nx"])
def test_code_needs_a_closed_block_tagged_python(block: str) -> None:
    """Untagged, otherwise tagged and unclosed blocks are no code."""
    assert outcome_of(f"{{{{{IDEA}}}}}{block}") is Outcome.MISSING_CODE


def test_the_tag_may_have_any_case() -> None:
    """PYTHON is python."""
    assert parse(f"{{{{{IDEA}}}}}```PyThOn\nx = 1\n```") == Proposal(IDEA, "x = 1")


def test_several_blocks_are_a_missing_function() -> None:
    """Two python blocks leave open which is meant."""
    assert outcome_of(f"{{{{{IDEA}}}}}{BLOCK}{BLOCK}") is Outcome.MISSING_FUNCTION


def test_what_a_block_defines_is_left_to_the_worker() -> None:
    """An empty or broken block is still a proposal here: only executing it can tell."""
    assert parse(f"{{{{{IDEA}}}}}```python```") == Proposal(IDEA, "")
    assert isinstance(parse(f"{{{{{IDEA}}}}}```python\ndef (:\n```"), Proposal)


def test_the_word_random_counts_wherever_it_stands() -> None:
    """Imports, names and comments alike; the match minds case."""
    assert mentions_randomness("import random")
    assert mentions_randomness("x = 1  # no randomness here")
    assert not mentions_randomness("RANDOM = 4")


def test_a_block_ends_at_the_first_three_backticks_after_its_tag() -> None:
    """Fewer backticks are part of the code, more end it, and what is never closed is no block."""
    for code in ("a = '`'", "a = '``'", "`` ` ``", ""):
        assert parse(f"{{{{{IDEA}}}}}```PyThon\n{code}\n````") == Proposal(IDEA, code)
    assert outcome_of(f"{{{{{IDEA}}}}}```python\na = '``'") is Outcome.MISSING_CODE
