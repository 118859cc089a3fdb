"""The memory of injected components (HOST.md, points 15 and 19)."""

import re
from collections.abc import Iterable

from search_to_signal.programs.markers import COMPONENT_AFTER, COMPONENT_BEFORE

# Both markers consist of these characters, so a match lies within one run of them: linear time.
_RUN = re.compile(r"[A-Za-z()'\- ]+")


def component(response: str) -> str | None:
    """The first component that a response announces anywhere in the fixed sentence, stripped; or None."""
    for run in _RUN.findall(response):
        start = run.find(COMPONENT_BEFORE)
        end = run.find(COMPONENT_AFTER, start + len(COMPONENT_BEFORE)) if start >= 0 else -1
        phrase = run[start + len(COMPONENT_BEFORE) : end].strip() if end >= 0 else ""
        if phrase:
            return phrase
    return None


def remembered(injected: tuple[str, ...], responses: Iterable[str]) -> tuple[str, ...]:
    """Add what these responses announce, each component once."""
    found = (phrase for phrase in map(component, responses) if phrase is not None)
    return tuple(dict.fromkeys((*injected, *found)))
