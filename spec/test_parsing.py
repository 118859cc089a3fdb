"""Parsing survives anything and types everything; hostile text costs linear time."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from search_to_signal.records.schema import ANY_FENCE, BARE_FENCE, IdeaEnd, Outcome
from search_to_signal.sandbox.programs import (
    OPENING,
    Failure,
    Proposal,
    canonical,
    mentions_randomness,
    parse,
    program_sha256,
)
from spec.profiles import many

PIECES = [
    "{{", "}}", "{", "}", "```", "`", "```python", "```PYTHON\n", "```py", "\n", " ", OPENING, OPENING[:20],
    " walk the nearest node first", "def f(a):\n    return a\n", "random", "\0", "\ud800", "é", "''' ", "\\",
]  # fmt: skip
completions = st.lists(st.sampled_from(PIECES) | st.text(max_size=12), max_size=14).map("".join)
LINES = ["def f():\n", "    'doc'\n", "    x = 1  # c\n", "'s'\n", "x = [\n", "]\n", "\t", "(", "lambda: 0\n"]
codes = st.lists(st.sampled_from(LINES) | st.text(max_size=8), max_size=10).map("".join)


def model(text: str, end: str) -> Outcome | None:
    """Points 1, 2 and 20 of HOST.md with splits alone; None for a proposal. ``end`` ends a loose idea."""
    _, _, rest = text.partition("{{")
    if "}}" in rest:
        idea = rest.split("}}")[0]
    else:
        idea = (OPENING + text.split(OPENING, 1)[1].split(end)[0]).strip() if OPENING in text else ""
    if not idea.startswith(OPENING) or len(idea[len(OPENING) :]) <= 10:
        return Outcome.MISSING_RATIONALE
    blocks, rest = 0, text.lower()
    while "```python" in rest:
        _, _, rest = rest.partition("```python")
        if "```" not in rest:
            break
        _, _, rest = rest.partition("```")
        blocks += 1
    return [Outcome.MISSING_CODE, None, Outcome.MISSING_FUNCTION][min(blocks, 2)]


@settings(max_examples=many(300), deadline=None)
@given(completions, st.sampled_from([(ANY_FENCE, "\n```"), (BARE_FENCE, "```\n")]))
def test_every_completion_gets_its_type(text: str, reading: tuple[IdeaEnd, str]) -> None:
    """R-PARSE-01: any text is a proposal or the first failure in the host's order (D04), and none crashes."""
    idea_end, end = reading
    result = parse(text, idea_end)
    assert (result.outcome if isinstance(result, Failure) else None) == model(text, end)
    if isinstance(result, Proposal):
        assert result.idea in text
        assert result.idea.startswith(OPENING)
        _, _, braced = text.partition("{{")
        assert "}}" in braced or result.idea == result.idea.strip()
        assert result.code in text
        assert result.code == result.code.strip()
        assert mentions_randomness(result.code) == ("random" in result.code)


@settings(max_examples=many(200), deadline=None)
@given(codes)
def test_every_code_has_one_canonical_form(code: str) -> None:
    """R-PARSE-02: canonical form never fails, is its own canonical form, and names the program."""
    form = canonical(code)
    assert canonical(form) == form
    assert program_sha256(code) == program_sha256(form)


def test_hostile_completions_cost_linear_time() -> None:
    """R-PARSE-03: a megabyte of the worst repetitions of every marker is parsed at once."""
    heads = ["", OPENING, f"{{{{{OPENING} go to the nearest"]
    started = time.process_time()
    for head in heads:
        for piece in PIECES:
            parse(head + piece * (1_000_000 // len(piece)))
    assert time.process_time() - started < 10
