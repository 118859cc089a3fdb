"""Which tokens of a completion are its rationale and which its program, by what the parser reads (D43)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from search_to_signal.programs.parsing import Span, code_spans, idea_span
from search_to_signal.records.schema import ANY_FENCE, IdeaEnd

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
