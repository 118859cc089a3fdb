"""CALM's search behind the protocol of a host: who becomes a parent, and what a prompt is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import settings_of
from search_to_signal.problems.base import Problem
from search_to_signal.records.schema import Operator
from search_to_signal.search.host import HostSetup, Request, Transition
from search_to_signal.search.hosts.calm import prompts
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import (
    EQUAL_WITHIN,
    SearchState,
    bases,
    collapse_due,
    collapsed,
    holds,
    idea_distance,
    initial_state,
    state_of,
    transition,
    words_of,
)
from search_to_signal.search.member import Evaluated, Member, Prompt, scores

Vector = NDArray[np.float64]


# Who becomes a parent, as exact distributions; sampling and exposure both read them.
#
# All vectors are in listing order (best first). A distribution that sums to less than one leaves the rest
# to starting the whole crossover draw again (HOST.md, points 10 and 11).


def by_rank(size: int) -> Vector:
    """(size,) probabilities proportional to 1/rank."""
    weights = 1.0 / np.arange(1, size + 1)
    chances: Vector = weights / weights.sum()
    return chances


def primary(archive_size: int, settings: SearchSettings) -> Vector:
    """(head,) chance of each head member as the only or first parent."""
    return by_rank(min(archive_size, settings.population_size))


def secondary_by_performance(head_scores: Vector) -> Vector:
    """(head, head) chance of each head member by first parent; zero for those equal to it."""
    usable = np.abs(head_scores - head_scores[:, None]) >= EQUAL_WITHIN
    chances: Vector = by_rank(len(head_scores)) * usable
    return chances


def diversity_order(distance: Vector) -> NDArray[np.intp]:
    """(n,) positions, most distant first; among equally distant ones the better listed first."""
    return np.argsort(-distance, kind="stable")


def secondary_by_diversity(distance: Vector) -> Vector:
    """(n,) chance of each member by its rank in diversity_order; zero at distance zero."""
    chances = np.empty(len(distance))
    chances[diversity_order(distance)] = by_rank(len(distance))
    return chances * (distance > 0)


def crossover_pairs(head_scores: Vector, distances: Vector) -> Vector:
    """(head, n) chance of each pair of first and second parent, given that the draw ends.

    ``head_scores`` is (head,), row i of ``distances`` (head, n) holds the distances to head member i.
    All zero when no pair can ever be used.
    """
    head = len(head_scores)
    seconds = np.array([secondary_by_diversity(row) for row in distances])
    seconds[:, :head] += secondary_by_performance(head_scores)
    pairs: Vector = by_rank(head)[:, None] * seconds
    total = pairs.sum()
    return pairs / total if total > 0 else pairs


def _diversity_marginal(distances: Vector, member: int) -> tuple[Vector, Vector]:
    """(head,) chance of one member, and (head,) chance of any, as rows of secondary_by_diversity give them.

    Counts who comes before the member in diversity_order instead of sorting.
    """
    chances = by_rank(distances.shape[1])
    own = distances[:, member, None]
    before = (distances > own).sum(axis=1) + (distances[:, :member] == own).sum(axis=1)
    usable = np.concatenate(([0.0], np.cumsum(chances)))[(distances > 0).sum(axis=1)]
    return np.where(own[:, 0] > 0, chances[before], 0.0), usable


def crossover_chance(head_scores: Vector, distances: Vector, member: int) -> float:
    """Chance that one member is a parent of a crossover: row plus column of crossover_pairs, in linear time.

    Zero when no pair can ever be used.
    """
    size = len(head_scores)
    diverse, usable = _diversity_marginal(distances, member)
    performing = secondary_by_performance(head_scores)
    second = diverse + (performing[:, member] if member < size else 0.0)
    ends = by_rank(size) * (usable + performing.sum(axis=1))
    total = ends.sum()
    if total <= 0:
        return 0.0
    first = ends[member] if member < size else 0.0
    return float((first + by_rank(size) @ second) / total)


def draw_index(probabilities: NDArray[np.float64], rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to its entry; entries of zero are never drawn."""
    cumulative = np.cumsum(probabilities)
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))


def draw_index_or_none(probabilities: NDArray[np.float64], rng: np.random.Generator) -> int | None:
    """Draw an index with the probability of its entry; None with what is missing to one."""
    index = int(np.searchsorted(np.cumsum(probabilities), rng.random(), side="right"))
    return index if index < len(probabilities) else None


def pair_exists(state: SearchState, settings: SearchSettings) -> bool:
    """Whether some crossover pair of a listed archive can be used, so that starting again ends."""
    head = state.archive[: settings.population_size]
    if head and head[0].score - head[-1].score >= EQUAL_WITHIN:
        return True
    return any(state.distances(first).any() for first in head)


def draw_crossover(
    state: SearchState, settings: SearchSettings, rng: np.random.Generator
) -> tuple[Member, Member] | None:
    """Draw first and second parent of a listed archive, starting again as the host does (HOST.md, point 11).

    None when no pair can ever be used.
    """
    if not pair_exists(state, settings):
        return None
    while True:
        head = primary(len(state.archive), settings)
        first = draw_index(head, rng)
        if rng.random() < 0.5:
            chances = secondary_by_performance(scores(state.archive[: len(head)]))[first]
        else:
            chances = secondary_by_diversity(state.distances(state.archive[first]))
        second = draw_index_or_none(chances, rng)
        if second is not None:
            return state.archive[first], state.archive[second]


def draw_parents(
    state: SearchState, settings: SearchSettings, rng: np.random.Generator
) -> tuple[Operator, tuple[Member, ...]] | None:
    """Draw an operator and its parents, primary first, from a listed state; None when none can be used."""
    probabilities = prompts.operator_probabilities(len(state.archive), settings)
    if not state.archive or not probabilities.any():
        return None
    operator = prompts.OPERATORS[draw_index(probabilities, rng)]
    if operator != prompts.CROSSOVER:
        return operator, (state.archive[draw_index(primary(len(state.archive), settings), rng)],)
    pair = draw_crossover(state, settings, rng)
    return None if pair is None else (operator, pair)


# One-step parent exposure (D13): how likely the next prompt is to build on a candidate, if inserted.
#
# The chance that the candidate is the only or first parent, or the second parent of a crossover, under the
# operator weights, the first-fill rule and the rejection of unusable pairs, out of the distributions
# above. A collapse before the next prompt is left out.


def _inserted_distances(state: SearchState, base: Vector, candidate: Member, position: int) -> Vector:
    """(head, n + 1) distances to the head after insertion, from those to the head before, (head, n)."""
    words = words_of(candidate.idea)
    to_candidate = [idea_distance(words, words_of(first.idea)) for first in state.archive[: len(base)]]
    rows = np.insert(base, position, to_candidate, axis=1)
    if position > len(base):
        return rows
    own = np.insert(state.distances(candidate), position, 0.0)
    return np.insert(rows, position, own, axis=0)


def exposures(
    state: SearchState, results: Sequence[Evaluated], settings: SearchSettings, *, unconditional: bool = False
) -> tuple[float | None, ...]:
    """Exact exposure of each valid completion, inserted alone into the listed state of the draw.

    In [0, 1]; None for an invalid completion, and 0 for one that would not be admitted unless
    ``unconditional`` (alternative of D13).
    """
    archived = scores(state.archive)
    firsts = state.archive[: settings.population_size]
    base = np.array([state.distances(first) for first in firsts]).reshape(len(firsts), len(archived))

    def exposure(result: Evaluated) -> float | None:
        if result.score is None:
            return None
        if not unconditional and holds(archived, result.score):
            return 0.0
        candidate = Member(result.idea, result.code, result.score, operator=None, step=0, index=0, id="")
        position = int((archived > result.score).sum())
        after = np.insert(archived, position, result.score)
        head = primary(len(after), settings)
        distances = _inserted_distances(state, base, candidate, position)[: len(head)]
        crossing = crossover_chance(after[: len(head)], distances, position)
        alone = head[position] if position < len(head) else 0.0
        operators = prompts.operator_probabilities(len(after), settings)
        chances = [crossing if operator == prompts.CROSSOVER else alone for operator in prompts.OPERATORS]
        return float(operators @ chances)

    return tuple(exposure(result) for result in results)


# One prompt's draws: collapse, listing, operator, parents (HOST.md, points 8 to 12 and 14).

_MOST_REDRAWS = 100


@dataclass(frozen=True)
class Draw:
    """What one prompt will be made of. ``parents`` has the primary first and is empty for creation.

    ``state`` is the state in which the group is generated: collapsed if it came to that, listed, and with
    this prompt among its used ones. ``variant`` is the wording of a replacement, 0 for the others.
    """

    state: SearchState
    operator: Operator
    parents: tuple[Member, ...]
    variant: int = 0
    collapsed: bool = False
    prompt: str = ""

    @property
    def bases(self) -> tuple[Member, ...]:
        """The members that count as bases of the prompt, best first."""
        return bases(self.state.archive, self.parents)


def _unused(
    state: SearchState, settings: SearchSettings, rng: np.random.Generator, render: Callable[[Draw], str]
) -> Draw:
    for _ in range(_MOST_REDRAWS):
        drawn = draw_parents(state, settings, rng)
        if drawn is None:
            break
        operator, parents = drawn
        variant = int(rng.integers(prompts.REPLACEMENT_VARIANTS)) if operator == prompts.REPLACEMENT else 0
        draw = Draw(state, operator, parents, variant)
        draw = replace(draw, prompt=render(draw))
        if draw.prompt not in state.used_prompts:
            return draw
    draw = Draw(state, prompts.CREATION, ())
    return replace(draw, prompt=render(draw))


def plan_round(
    state: SearchState, rng: np.random.Generator, settings: SearchSettings, render: Callable[[Draw], str]
) -> Draw:
    """Draw what the next prompt is made of.

    ``render`` turns a draw into the prompt text, so that a prompt already used in this round is drawn
    again; when no prompt can be made, or none that is new, a creation prompt is used. A round of several
    prompts calls this once per prompt, each time with the state of the draw before.
    """
    was_collapsed = collapse_due(state.stagnation, settings, rng)
    state = (collapsed(state) if was_collapsed else state).listed()
    draw = _unused(state, settings, rng, render)
    used = replace(state, used_prompts=state.used_prompts | {draw.prompt})
    return replace(draw, state=used, collapsed=was_collapsed)


@dataclass(frozen=True)
class ReferenceHost:
    """Our clean-room CALM for one problem; its states are ``SearchState``."""

    problem: Problem
    settings: SearchSettings
    is_calm: ClassVar[bool] = True

    def start(self, seed: Member) -> SearchState:
        """The seed heuristic alone."""
        return initial_state(seed)

    def start_with(self, seed: Member, population: Sequence[Member]) -> SearchState:
        """The seed heuristic and a given population; nothing is stagnant or injected yet (D45)."""
        return state_of((seed, *population), (seed,))

    def propose(self, state: SearchState, rng: np.random.Generator) -> Request:
        """Collapse, listing, operator and parents (HOST.md, points 8 to 12 and 14)."""
        draw = plan_round(state, rng, self.settings, lambda draw: self._prompt(draw).user)
        return Request(
            prompt=self._prompt(draw),
            operator=draw.operator,
            parents=draw.parents,
            bases=draw.bases,
            archive=draw.state.archive,
            state=draw.state,
            collapsed=draw.collapsed,
        )

    def update(self, request: Request, results: Sequence[Evaluated], step: int) -> Transition:
        """Admission by score, stagnation and components (HOST.md, points 7, 13 and 15)."""
        before: SearchState = request.state
        after, events = transition(
            before, results, operator=request.operator, step=step, settings=self.settings
        )
        admitted = after.archive[len(before.archive) :]
        return Transition(after, events, admitted, after.archive, after.stagnation)

    def exposures(self, request: Request, results: Sequence[Evaluated]) -> tuple[float | None, ...]:
        """The chance of being drawn as a parent in the next round (D13)."""
        return exposures(request.state, results, self.settings)

    def _prompt(self, draw: Draw) -> Prompt:
        return prompts.build_prompt(
            self.problem,
            draw.operator,
            draw.parents,
            variant=draw.variant,
            injected=draw.state.injected,
            form=self.settings.prompts,
        )


def reference_host(setup: HostSetup) -> ReferenceHost:
    """The host of a profile; raises ConfigError for settings outside ``[search]``."""
    if setup.settings:
        raise ConfigError(
            f"host_settings has {', '.join(sorted(setup.settings))}, but the reference host reads only "
            "[search]: move it there, or remove it"
        )
    return ReferenceHost(setup.problem, settings_of(setup.search, SearchSettings, "search"))
