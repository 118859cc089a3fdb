"""TTT-Discover's search: a buffer of solutions, and the host that samples from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from search_to_signal.base.numerics import Floats
from search_to_signal.base.settings import Range, Settings, settings_of
from search_to_signal.problems.base import Problem
from search_to_signal.search.host import HostSetup, Request, Transition
from search_to_signal.search.hosts.calm.prompts import REPLACEMENT, REPLACEMENT_VARIANTS, build_prompt
from search_to_signal.search.member import Evaluated, Member, PromptForm, event_of, member_of

# The knobs of the reuse buffer, by TTT-Discover's names (recipes/ttt/sampler.py).


class BufferSettings(Settings, frozen=True, kw_only=True):
    """``puct_c`` weighs rarely tried programs; a group adds its ``topk_children`` best, 0 for all of them.

    Beyond ``max_buffer_size`` the worst leave, the seed never.
    """

    TABLE = "host_settings"
    puct_c: Annotated[float, Range(0, 1e6)] = 1.0
    topk_children: Annotated[int, Range(0, 1_000_000)] = 2
    max_buffer_size: Annotated[int, Range(2, 1_000_000)] = 1000


# The reuse buffer: programs with how often they were built on, and the best that came of each.
#
# Source: TTT-Discover (test-time-training/discover, PUCTSampler). Nothing here is changed in place.

_LEAST_SCALE = 1e-6


@dataclass(frozen=True)
class ReuseBuffer:
    """Programs, seed first; ``visits`` counts groups built on one or what came of it, ``total`` all groups.

    ``lineage`` has the ancestors of each, nearest first; ``reached`` the best score that a group built on it
    gave.
    """

    members: tuple[Member, ...]
    lineage: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    visits: Mapping[str, int] = field(default_factory=dict)
    reached: Mapping[str, float] = field(default_factory=dict)
    total: int = 0


def priors(scores: Floats) -> Floats:
    """(n,) weights that fall in line with the rank, the best first; of equal ones the first is better."""
    ranks = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
    weights = (len(scores) - ranks).astype(np.float64)
    shares: Floats = weights / weights.sum()
    return shares


def values(buffer: ReuseBuffer, settings: BufferSettings) -> Floats:
    """(n,) what the next program is chosen by: best reached, and a bonus for rank and few visits.

    Q + c * scale * P * sqrt(1 + T) / (1 + n), with the range of the scores, the seed left out, as scale.
    """
    scores = np.array([member.score for member in buffer.members])
    without_seed = scores[1:] if len(scores) > 1 else scores
    scale = max(float(without_seed.max() - without_seed.min()), _LEAST_SCALE)
    visits = np.array([buffer.visits.get(member.id, 0) for member in buffer.members])
    reached = np.array([buffer.reached.get(member.id, member.score) for member in buffer.members])
    bonus = settings.puct_c * scale * priors(scores) * np.sqrt(1.0 + buffer.total) / (1.0 + visits)
    result: Floats = reached + bonus
    return result


def chosen(buffer: ReuseBuffer, settings: BufferSettings) -> Member:
    """The program that the next group builds on: of the greatest value, then score, then age."""
    ranked = zip(values(buffer, settings), buffer.members, range(len(buffer.members)), strict=True)
    return max(ranked, key=lambda entry: (entry[0], entry[1].score, -entry[2]))[1]


def visited(buffer: ReuseBuffer, parent: Member, best: float | None) -> ReuseBuffer:
    """A group was built on ``parent``; ``best`` is the best score it gave, None where nothing was valid."""
    visits = dict(buffer.visits)
    for identity in (parent.id, *buffer.lineage.get(parent.id, ())):
        visits[identity] = visits.get(identity, 0) + 1
    reached = dict(buffer.reached)
    if best is not None:
        reached[parent.id] = max(best, reached.get(parent.id, best))
    return replace(buffer, visits=visits, reached=reached, total=buffer.total + 1)


def extended(buffer: ReuseBuffer, parent: Member, new: Sequence[Member], size: int) -> ReuseBuffer:
    """With new programs that came of ``parent``; of too many the seed and the best stay, in their order."""
    ancestors = (parent.id, *buffer.lineage.get(parent.id, ()))
    lineage = {**buffer.lineage, **{member.id: ancestors for member in new}}
    members = (*buffer.members, *new)
    if len(members) > size:
        best = sorted(members[1:], key=lambda member: -member.score)[: size - 1]
        kept = {member.id for member in best}
        members = (members[0], *(member for member in members[1:] if member.id in kept))
    return replace(buffer, members=members, lineage=lineage)


@dataclass(frozen=True)
class EntropicHost:
    """The reuse buffer for one problem; its states are ``ReuseBuffer``."""

    problem: Problem
    settings: BufferSettings
    form: PromptForm = "compact"

    def start(self, seed: Member) -> ReuseBuffer:
        """The seed heuristic alone."""
        return ReuseBuffer((seed,))

    def propose(self, state: ReuseBuffer, rng: np.random.Generator) -> Request:
        """A replacement of the program that is due; the wording alone is drawn (D55)."""
        parent = chosen(state, self.settings)
        variant = int(rng.integers(REPLACEMENT_VARIANTS))
        operator = REPLACEMENT
        prompt = build_prompt(self.problem, operator, (parent,), variant=variant, form=self.form)
        return Request(prompt, operator, (parent,), (parent,), archive=state.members, state=state)

    def update(self, request: Request, results: Sequence[Evaluated], step: int) -> Transition:
        """Keep the best few programs that are new; every other valid one counts as a duplicate (D55)."""
        buffer, (parent,) = request.state, request.parents
        # The best children whose code the buffer does not have, in order of their completions.
        children: dict[str, Member] = {}
        known = {member.id for member in request.archive}
        for index, result in enumerate(results):
            if result.score is not None and result.id not in {*known, *children}:
                children[result.id] = member_of(result, request.operator, step, index)
        ranked = sorted(children.values(), key=lambda member: -member.score)
        kept = ranked[: self.settings.topk_children or None]
        new = tuple(sorted(kept, key=lambda member: member.index))
        places = {member.index for member in new}
        scores = [result.score for result in results if result.score is not None]
        after = visited(buffer, parent, max(scores, default=None))
        after = extended(after, parent, new, self.settings.max_buffer_size)
        events = tuple(event_of(result, index in places) for index, result in enumerate(results))
        return Transition(after, events, new, after.members)

    def exposures(self, request: Request, results: Sequence[Evaluated]) -> tuple[float | None, ...]:
        """1 for a completion that alone would be the next to build on, 0 for any other: nothing is drawn."""
        return tuple(self._exposure(request, result) for result in results)

    def _exposure(self, request: Request, result: Evaluated) -> float | None:
        if result.score is None:
            return None
        transition = self.update(request, [result], step=0)
        return float(any(chosen(transition.state, self.settings) is member for member in transition.admitted))


def host(setup: HostSetup) -> EntropicHost:
    """The host of a profile; raises ConfigError for settings that are not its own."""
    settings = settings_of(setup.settings, BufferSettings, "host_settings")
    return EntropicHost(setup.problem, settings, setup.form)
