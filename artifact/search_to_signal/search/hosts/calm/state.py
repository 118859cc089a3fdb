"""What CALM's search remembers between rounds. Everything here is frozen; a round makes a new state.

Scores are higher-is-better.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.errors import ConfigError
from search_to_signal.records.schema import ArchiveEvent, Operator
from search_to_signal.sandbox.programs import COMPONENT_AFTER, COMPONENT_BEFORE
from search_to_signal.search.hosts.calm.prompts import INJECTION
from search_to_signal.search.hosts.calm.settings import TWENTIETH, SearchSettings
from search_to_signal.search.member import Evaluated, Member, frontier, member_of, scores

# The word sets of an archive's ideas as arrays, so that a distance to thousands costs one pass.
#
# Ideas are stored in order of arrival and read in listing order; a new state shares the arrays of the
# old one.

WordSet = frozenset[str]
Integers = NDArray[np.intp]
_WORD = re.compile(r"\w+")


@lru_cache(maxsize=1 << 14)
def words_of(idea: str) -> WordSet:
    """The distinct lower-cased words of an idea (HOST.md, point 11)."""
    return frozenset(_WORD.findall(idea.lower()))


def idea_distance(words: WordSet, known: WordSet) -> float:
    """Share of ``words`` that ``known`` lacks; 0 without words (HOST.md, point 11)."""
    return len(words - known) / len(words) if words else 0.0


@dataclass(frozen=True)
class Ideas:
    """n word sets. ``number`` numbers the words; ``order`` (n,) has the stored row of each listed idea.

    Stored row r has the words ``words[ends[r] : ends[r + 1]]``.
    """

    number: Mapping[str, int]
    words: Integers
    ends: Integers
    order: Integers

    def __len__(self) -> int:
        return len(self.order)

    def extended(self, word_sets: Sequence[WordSet]) -> "Ideas":
        """These ideas, and then ``word_sets``."""
        number = dict(self.number)
        words = [number.setdefault(word, len(number)) for known in word_sets for word in sorted(known)]
        sizes = np.array([len(known) for known in word_sets], dtype=np.intp)
        stored = np.arange(len(self), len(self) + len(sizes), dtype=np.intp)
        return Ideas(
            number=number,
            words=np.concatenate((self.words, np.array(words, dtype=np.intp))),
            ends=np.concatenate((self.ends, self.ends[-1] + np.cumsum(sizes))),
            order=np.concatenate((self.order, stored)),
        )

    def taken(self, positions: Integers) -> "Ideas":
        """The same ideas, listed in the order of ``positions``, a permutation."""
        return replace(self, order=self.order[positions])

    def distances(self, known: WordSet) -> NDArray[np.float64]:
        """(n,) idea_distance of every idea to ``known``, in listing order."""
        is_known = np.zeros(len(self.number), dtype=np.intp)
        is_known[[self.number[word] for word in known if word in self.number]] = 1
        shared = np.zeros(len(self.words) + 1, dtype=np.intp)
        np.cumsum(is_known.take(self.words), out=shared[1:])
        sizes = np.diff(self.ends)
        share: NDArray[np.float64] = (sizes - np.diff(shared[self.ends])) / np.maximum(sizes, 1)
        return share[self.order]


EQUAL_WITHIN = 1e-7
"""Scores nearer than this are one heuristic's (HOST.md, point 6)."""


@dataclass(frozen=True)
class SearchState:
    """The search between two rounds.

    ``archive`` is in the order of its last listing, new members last; ``ideas`` are its word sets in the
    same order, so an archive is changed through the methods here. ``used_prompts`` are those of the round
    in progress (HOST.md, point 12). ``injected`` are the components in order of appearance. ``stagnation``
    counts rounds without a new best (HOST.md, point 13).
    """

    archive: tuple[Member, ...]
    seeds: tuple[Member, ...]
    ideas: Ideas
    used_prompts: frozenset[str] = frozenset()
    injected: tuple[str, ...] = ()
    stagnation: int = 0

    def extended(self, new: Sequence[Member]) -> "SearchState":
        """With new members at the end of the listing."""
        ideas = self.ideas.extended([words_of(member.idea) for member in new])
        return replace(self, archive=(*self.archive, *new), ideas=ideas)

    def listed(self) -> "SearchState":
        """Listed best first; exact ties in reverse order of the previous listing (HOST.md, point 8)."""
        scores = np.array([member.score for member in self.archive])
        order = np.argsort(scores, kind="stable")[::-1]
        return replace(self, archive=tuple(self.archive[i] for i in order), ideas=self.ideas.taken(order))

    def distances(self, member: Member) -> NDArray[np.float64]:
        """(n,) distance of every archived idea to that of ``member`` as first parent, in listing order."""
        return self.ideas.distances(words_of(member.idea))


def state_of(members: Sequence[Member], seeds: Sequence[Member]) -> SearchState:
    """A state with these archive members, listed as given, and these seed members."""
    empty, words = np.empty(0, dtype=np.intp), [words_of(member.idea) for member in members]
    ideas = Ideas({}, empty, np.zeros(1, dtype=np.intp), empty).extended(words)
    return SearchState(archive=tuple(members), seeds=tuple(seeds), ideas=ideas)


def initial_state(seed: Member) -> SearchState:
    """The state before the first round: the seed heuristic alone."""
    return state_of((seed,), (seed,))


def equal(first: float, second: float) -> bool:
    """Whether two heuristics with these scores count as one."""
    return abs(first - second) < EQUAL_WITHIN


def holds(archived: NDArray[np.float64], score: float) -> bool:
    """Whether one of the archived scores, (n,), is equal to a score."""
    return bool((np.abs(archived - score) < EQUAL_WITHIN).any())


def bases(archive: Sequence[Member], parents: Sequence[Member]) -> tuple[Member, ...]:
    """The members, as listed, whose stripped code a prompt with these parents shows (HOST.md, Prompts)."""
    shown = {parent.code.strip() for parent in parents}
    return tuple(member for member in archive if member.code.strip() in shown)


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
