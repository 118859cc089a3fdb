"""TTT-Discover's search behind the protocol of a host: a reuse buffer, and one program to build on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from search_to_signal.config import settings_of
from search_to_signal.hosts.calm.operators import REPLACEMENT
from search_to_signal.hosts.calm.prompts import REPLACEMENT_VARIANTS, build_prompt
from search_to_signal.hosts.entropic.buffer import ReuseBuffer, chosen, extended, visited
from search_to_signal.hosts.entropic.settings import BufferSettings
from search_to_signal.problems.base import Problem
from search_to_signal.search.evaluated import Evaluated, event_of, member_of
from search_to_signal.search.host import HostSetup, Request, Transition
from search_to_signal.search.member import Member
from search_to_signal.search.prompt import PromptForm


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
        new = self._new(request, results, step)
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

    def _new(self, request: Request, results: Sequence[Evaluated], step: int) -> tuple[Member, ...]:
        """The best children whose code the buffer does not have, in order of their completions."""
        children: dict[str, Member] = {}
        known = {member.id for member in request.archive}
        for index, result in enumerate(results):
            if result.score is not None and result.id not in {*known, *children}:
                children[result.id] = member_of(result, request.operator, step, index)
        ranked = sorted(children.values(), key=lambda member: -member.score)
        kept = ranked[: self.settings.topk_children or None]
        return tuple(sorted(kept, key=lambda member: member.index))


def entropic_host(setup: HostSetup) -> EntropicHost:
    """The host of a profile; raises ConfigError for settings that are not its own."""
    settings = settings_of(setup.settings, BufferSettings, "host_settings")
    return EntropicHost(setup.problem, settings, setup.form)
