"""What one group does to CALM's search: a pure function of the state and the evaluated completions."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from search_to_signal.base.errors import ConfigError
from search_to_signal.records.schema import ArchiveEvent, Operator
from search_to_signal.sandbox.programs import COMPONENT_AFTER, COMPONENT_BEFORE
from search_to_signal.search.hosts.calm.prompts import INJECTION
from search_to_signal.search.hosts.calm.settings import TWENTIETH, SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, equal, holds, state_of
from search_to_signal.search.member import Evaluated, Member, frontier, member_of, scores

# Which completions of a group CALM's archive admits (HOST.md, points 6 and 7).


def admitted(
    state: SearchState, results: Sequence[Evaluated], operator: Operator, step: int
) -> tuple[tuple[Member, ...], tuple[ArchiveEvent, ...]]:
    """The new members of a group, and what became of each completion: admitted, a duplicate or invalid.

    Admission goes completion by completion, so the second of two equal children is a duplicate.
    """
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


# Stagnation and collapse (HOST.md, points 13, 14, 21 and 25).


def collapse_probability(stagnation: int, settings: SearchSettings) -> float:
    """Chance of a collapse before the next prompt; raises ConfigError for a threshold of -1."""
    if settings.collapse_threshold == TWENTIETH:
        raise ConfigError("search.collapse_threshold is -1: call SearchSettings.over(groups) before a run")
    if stagnation >= settings.collapse_threshold:
        return 1.0
    return min(1.0, settings.collapse_speed * stagnation)


def collapse_due(stagnation: int, settings: SearchSettings, rng: np.random.Generator) -> bool:
    """Draw whether to collapse now; always takes one number, so that later draws do not depend on it."""
    return bool(rng.random() < collapse_probability(stagnation, settings))


def collapsed(state: SearchState) -> SearchState:
    """Keep the first best member and every seed not equal to it; start counting and prompting afresh.

    Injected components survive.
    """
    best = max(state.archive, key=lambda member: member.score, default=None)
    kept = () if best is None else (best,)
    seeds = (seed for seed in state.seeds if best is None or not equal(seed.score, best.score))
    return replace(state_of((*kept, *seeds), state.seeds), injected=state.injected)


def stagnation_after(before: int, archive_size: int, improved: bool, settings: SearchSettings) -> int:
    """Counter after a round that began with ``archive_size`` members.

    A valid child above the global best resets it, however near and whether admitted or not (HOST.md, point
    21); otherwise only rounds that began with a full population count.
    """
    if improved:
        return 0
    return before + (archive_size >= settings.population_size)


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
