"""Prompts by their whole text: what identifies each, and the part by which a person recognizes it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

# Characters of a prompt that are shown, and those before the first difference from which they may begin.
EXCERPT, _BEFORE = 120, 40
# Prompts that are held at once: more than the groups of a batch and those that are still open.
_MOST = 100_000


class Prompts:
    """The prompts of a log: of each, how it begins and what follows the part it shares with the first."""

    def __init__(self) -> None:
        self._first = ""
        self._known: dict[int, tuple[str, int, str]] = {}
        self._shared: int | None = None

    def add(self, prompt: Any) -> int:
        """A number for a text or conversation, equal for equal ones within a process; 0 for anything else."""
        text, begins = _texts(prompt)
        if text is None:
            return 0
        code = hash(text) & 2**64 - 1 or 1
        if code not in self._known:
            self._first = self._first or text
            shared = _common(self._first, text)
            self._known[code] = (_line(begins), shared, text[shared : shared + EXCERPT])
            if text != self._first:
                self._shared = shared if self._shared is None else min(self._shared, shared)
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return code

    def excerpts(self, codes: Iterable[int]) -> tuple[str, ...]:
        """One line for each number: how its prompt begins, or where the log's prompts begin to differ."""
        start, known = self._start(), self._known
        return tuple(self._excerpt(*known[code], start) if code in known else "" for code in codes)

    def _start(self) -> int:
        """Where excerpts begin: at a word shortly before the first difference, if that is not near enough."""
        if self._shared is None or self._shared <= EXCERPT // 2:
            return 0
        words = (match.start() for match in re.finditer(r"\S+", self._first[: self._shared]))
        return next((at for at in words if at >= self._shared - _BEFORE), self._shared)

    def _excerpt(self, begins: str, shared: int, tail: str, start: int) -> str:
        return _line(f"…{self._first[start:shared]}{tail}") if start else begins


def _texts(prompt: Any) -> tuple[str | None, str]:
    """A prompt as one text, and the text it is shown by: of a conversation all messages, and the last."""
    if isinstance(prompt, str):
        return prompt, prompt
    if not isinstance(prompt, list | tuple) or not prompt or not isinstance(prompt[-1], Mapping):
        return None, ""
    messages = [message.get("content") if isinstance(message, Mapping) else message for message in prompt]
    texts = [message if isinstance(message, str) else repr(message) for message in messages]
    return "\n".join(texts), texts[-1]


def _line(text: str) -> str:
    return " ".join(text[: 4 * EXCERPT].split())[:EXCERPT]


def _common(first: str, second: str) -> int:
    """How many characters two texts begin with in common."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle - 1)
    return low
