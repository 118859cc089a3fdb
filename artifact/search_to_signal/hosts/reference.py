"""CALM's search as the loop asks it: room ``search`` behind the protocol of a host."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from search_to_signal.errors import ConfigError
from search_to_signal.hosts.base import Effect, HostSetup, Question
from search_to_signal.problems.base import Problem
from search_to_signal.search.exposure import exposures
from search_to_signal.search.planning import Draw, plan_round
from search_to_signal.search.prompts import Prompt, build_prompt
from search_to_signal.search.settings import SearchSettings
from search_to_signal.search.state import Member, SearchState, initial_state, state_of
from search_to_signal.search.transition import Evaluated, transition


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

    def ask(self, state: SearchState, rng: np.random.Generator) -> Question:
        """Collapse, listing, operator and parents (HOST.md, points 8 to 12 and 14)."""
        draw = plan_round(state, rng, self.settings, lambda draw: self._prompt(draw).user)
        return Question(
            prompt=self._prompt(draw),
            operator=draw.operator,
            parents=draw.parents,
            bases=draw.bases,
            archive=draw.state.archive,
            state=draw.state,
            collapsed=draw.collapsed,
        )

    def play(self, question: Question, results: Sequence[Evaluated], step: int) -> Effect:
        """Admission by score, stagnation and components (HOST.md, points 7, 13 and 15)."""
        before: SearchState = question.state
        after, events = transition(
            before, results, operator=question.operator, step=step, settings=self.settings
        )
        admitted = after.archive[len(before.archive) :]
        return Effect(after, events, admitted, after.archive, after.stagnation)

    def exposures(self, question: Question, results: Sequence[Evaluated]) -> tuple[float | None, ...]:
        """The chance of being drawn as a parent in the next round (D13)."""
        return exposures(question.state, results, self.settings)

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
    return ReferenceHost(setup.problem, setup.search)
