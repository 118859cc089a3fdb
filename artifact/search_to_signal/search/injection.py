"""The memory of injected components (host point 15)."""

import re
from collections.abc import Iterable

from search_to_signal.programs.markers import COMPONENT_AFTER, COMPONENT_BEFORE

NAMED_IN_PROMPTS = 10

# Both markers consist of these characters, so a match lies within one run of them: linear time.
_RUN = re.compile(r"[A-Za-z()\[\]'\- ]+")


def component(idea: str) -> str | None:
    """The first component that an idea announces in the fixed sentence, stripped; None without one."""
    for run in _RUN.findall(idea):
        start = run.find(COMPONENT_BEFORE)
        end = run.find(COMPONENT_AFTER, start + len(COMPONENT_BEFORE)) if start >= 0 else -1
        phrase = run[start + len(COMPONENT_BEFORE) : end].strip() if end >= 0 else ""
        if phrase:
            return phrase
    return None


def remembered(injected: tuple[str, ...], ideas: Iterable[str]) -> tuple[str, ...]:
    """Add what the ideas of valid children of an injection prompt announce, each component once."""
    found = (phrase for phrase in map(component, ideas) if phrase is not None)
    return tuple(dict.fromkeys((*injected, *found)))
