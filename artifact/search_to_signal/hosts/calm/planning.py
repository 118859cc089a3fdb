"""One prompt's draws: collapse, listing, operator, parents (HOST.md, points 8 to 12 and 14)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from search_to_signal.hosts.calm.collapse import collapse_due, collapsed
from search_to_signal.hosts.calm.operators import CREATION, REPLACEMENT
from search_to_signal.hosts.calm.parents import draw_parents
from search_to_signal.hosts.calm.prompts import REPLACEMENT_VARIANTS
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState, bases
from search_to_signal.records.schema import Operator
from search_to_signal.search.member import Member

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


def _draw(state: SearchState, settings: SearchSettings, rng: np.random.Generator) -> Draw | None:
    drawn = draw_parents(state, settings, rng)
    if drawn is None:
        return None
    operator, parents = drawn
    variant = int(rng.integers(REPLACEMENT_VARIANTS)) if operator == REPLACEMENT else 0
    return Draw(state, operator, parents, variant)


def _unused(
    state: SearchState, settings: SearchSettings, rng: np.random.Generator, render: Callable[[Draw], str]
) -> Draw:
    for _ in range(_MOST_REDRAWS):
        draw = _draw(state, settings, rng)
        if draw is None:
            break
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
