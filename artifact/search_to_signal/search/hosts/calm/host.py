"""CALM's search behind the protocol of a host; its rules are in package ``search``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import settings_of
from search_to_signal.problems.base import Problem
from search_to_signal.records.schema import Operator
from search_to_signal.search.host import HostSetup, Request, Transition
from search_to_signal.search.hosts.calm.prompts import (
    CREATION,
    REPLACEMENT,
    REPLACEMENT_VARIANTS,
    build_prompt,
)
from search_to_signal.search.hosts.calm.selection import draw_parents, exposures
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import (
    SearchState,
    bases,
    collapse_due,
    collapsed,
    initial_state,
    state_of,
    transition,
)
from search_to_signal.search.member import Evaluated, Member, Prompt

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
        variant = int(rng.integers(REPLACEMENT_VARIANTS)) if operator == REPLACEMENT else 0
        draw = Draw(state, operator, parents, variant)
        draw = replace(draw, prompt=render(draw))
        if draw.prompt not in state.used_prompts:
            return draw
    draw = Draw(state, CREATION, ())
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
            f"host_settings has {', '.join(sorted(setup.settings))}, but the reference host reads only "
            "[search]: move it there, or remove it"
        )
    return ReferenceHost(setup.problem, settings_of(setup.search, SearchSettings, "search"))
