"""What one group does to CALM's search: a pure function of the state and the evaluated completions."""

from collections.abc import Sequence
from dataclasses import replace

from search_to_signal.hosts.calm.archive import equal, holds
from search_to_signal.hosts.calm.collapse import stagnation_after
from search_to_signal.hosts.calm.injection import remembered
from search_to_signal.hosts.calm.operators import INJECTION
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState
from search_to_signal.records.schema import ArchiveEvent, Operator
from search_to_signal.search.archive import frontier, scores
from search_to_signal.search.evaluated import Evaluated, member_of
from search_to_signal.search.member import Member


def _admitted(
    state: SearchState, results: Sequence[Evaluated], operator: Operator, step: int
) -> tuple[tuple[Member, ...], tuple[ArchiveEvent, ...]]:
    archived = scores(state.archive)
    new: list[Member] = []
    events: list[ArchiveEvent] = []
    for index, result in enumerate(results):
        if result.score is None:
            events.append(ArchiveEvent.INVALID)
        elif holds(archived, result.score) or any(equal(m.score, result.score) for m in new):
            events.append(ArchiveEvent.DUPLICATE_SCORE)
        else:
            events.append(ArchiveEvent.ADMITTED)
            new.append(member_of(result, operator, step, index))
    return tuple(new), tuple(events)


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
    told = (result.response for result, event in zip(results, events, strict=True) if event not in ignored)
    return remembered(injected, told)


def transition(
    state: SearchState,
    results: Sequence[Evaluated],
    *,
    operator: Operator,
    step: int,
    settings: SearchSettings,
) -> tuple[SearchState, tuple[ArchiveEvent, ...]]:
    """Return the state after a group, and what became of each completion, in order.

    ``state`` is that of the draw, ``operator`` the one of the prompt. Admission goes completion by
    completion, so the second of two equal children is a duplicate (HOST.md, points 7, 13 and 15). The round
    ends here: its used prompts are forgotten.
    """
    new, events = _admitted(state, results, operator, step)
    best = frontier(state.archive)
    improved = any(r.score is not None and (best is None or r.score > best) for r in results)
    after = replace(
        state.extended(new),
        used_prompts=frozenset(),
        injected=_components(state.injected, results, events, operator, settings),
        stagnation=stagnation_after(state.stagnation, len(state.archive), improved, settings),
    )
    return after, events
