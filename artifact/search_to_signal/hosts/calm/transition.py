"""What one group does to CALM's search: a pure function of the state and the evaluated completions.

And what all groups of a recorded run do, from its records alone: no model, no evaluation, no draws.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from search_to_signal.errors import RecordError
from search_to_signal.hosts.calm.admission import admitted
from search_to_signal.hosts.calm.collapse import collapsed, stagnation_after
from search_to_signal.hosts.calm.operators import INJECTION
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState
from search_to_signal.programs.markers import COMPONENT_AFTER, COMPONENT_BEFORE
from search_to_signal.records.schema import ArchiveEvent, Operator
from search_to_signal.search.archive import frontier
from search_to_signal.search.evaluated import Evaluated
from search_to_signal.search.round import Round

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
    """Add what these responses announce, each component once (HOST.md, points 15 and 19)."""
    announced = (phrase for phrase in map(component, responses) if phrase is not None)
    return tuple(dict.fromkeys((*injected, *announced)))


def _components(
    injected: tuple[str, ...],
    results: Sequence[Evaluated],
    events: Sequence[ArchiveEvent],
    operator: Operator,
    settings: SearchSettings,
) -> tuple[str, ...]:
    if operator != INJECTION:
        return injected
    ignored = {ArchiveEvent.INVALID}
    if settings.components == "admitted":
        ignored.add(ArchiveEvent.DUPLICATE_SCORE)
    responses = (
        result.response for result, event in zip(results, events, strict=True) if event not in ignored
    )
    return remembered(injected, responses)


def transition(
    state: SearchState,
    results: Sequence[Evaluated],
    *,
    operator: Operator,
    step: int,
    settings: SearchSettings,
) -> tuple[SearchState, tuple[ArchiveEvent, ...]]:
    """Return the state after a group, and what became of each completion, in order.

    ``state`` is that of the draw, ``operator`` the one of the prompt (HOST.md, points 7, 13 and 15).
    The round ends here: its used prompts are forgotten.
    """
    new, events = admitted(state, results, operator, step)
    best = frontier(state.archive)
    improved = any(r.score is not None and (best is None or r.score > best) for r in results)
    after = replace(
        state.extended(new),
        used_prompts=frozenset(),
        injected=_components(state.injected, results, events, operator, settings),
        stagnation=stagnation_after(state.stagnation, len(state.archive), improved, settings),
    )
    return after, events


def drawn_from(state: SearchState, played: Round) -> SearchState:
    """The listed state that a round drew its parents from, after the collapse where it had one."""
    return (collapsed(state) if played.collapsed else state).listed()


def replay(state: SearchState, rounds: Iterable[Round], settings: SearchSettings) -> Iterator[SearchState]:
    """Yield the state after each round, starting from ``state``.

    Raises RecordError when what became of a completion differs from its record.
    """
    for played in rounds:
        before = drawn_from(state, played)
        results = played.results()
        state, events = transition(
            before, results, operator=played.operator, step=played.step, settings=settings
        )
        if events != tuple(record.archive_event for record in played.records):
            raise RecordError(
                f"step {played.step} replays to other archive events than recorded: check that the records "
                "start at the first step, are complete, and were made with these settings"
            )
        yield state
