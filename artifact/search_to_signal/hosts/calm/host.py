"""CALM's search behind the protocol of a host; its rules are in package ``search``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from search_to_signal.config import settings_of
from search_to_signal.errors import ConfigError
from search_to_signal.hosts.calm.exposure import exposures
from search_to_signal.hosts.calm.planning import Draw, plan_round
from search_to_signal.hosts.calm.prompts import build_prompt
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState, initial_state, state_of
from search_to_signal.hosts.calm.transition import transition
from search_to_signal.problems.base import Problem
from search_to_signal.search.evaluated import Evaluated
from search_to_signal.search.host import HostSetup, Request, Transition
from search_to_signal.search.member import Member
from search_to_signal.search.prompt import Prompt


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
        return build_prompt(
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
            f"host_settings has {', '.join(sorted(setup.settings))}: the reference host reads [search] alone"
        )
    return ReferenceHost(setup.problem, settings_of(setup.search, SearchSettings, "search"))
