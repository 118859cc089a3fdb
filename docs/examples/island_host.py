"""A host: islands of programs, clustered by their scores on every instance, as FunSearch keeps them.

Source: Romera-Paredes et al. 2024, Nature 625, 468. Resets count groups here, the temperature is constant.
"""

import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from search_to_signal.base.numerics import Floats
from search_to_signal.base.settings import settings_of
from search_to_signal.problems.base import task_of
from search_to_signal.sandbox.programs import ANSWER_RULES
from search_to_signal.search.host import HostSetup, Request, Transition
from search_to_signal.search.member import Evaluated, Member, Prompt, event_of, member_of

Island = tuple[Member, ...]


class IslandSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A prompt shows ``shown`` programs of an island; every ``reset`` groups the worse half begins anew."""

    islands: Annotated[int, msgspec.Meta(ge=2)] = 10
    shown: Annotated[int, msgspec.Meta(ge=1)] = 2
    temperature: Annotated[float, msgspec.Meta(gt=0)] = 0.1
    reset: Annotated[int, msgspec.Meta(ge=1)] = 100


class Islands(NamedTuple):
    """The programs of every island, how many groups were played, and the island that is asked."""

    programs: tuple[Island, ...]
    groups: int = 0
    asked: int = 0

    @property
    def archive(self) -> Island:
        """Every distinct program."""
        return tuple({member.id: member for island in self.programs for member in island}.values())


def softmax(logits: Floats) -> Floats:
    """Probabilities (n,) in proportion to exp(logits), (n,)."""
    weights = np.exp(logits - logits.max())
    chances: Floats = weights / weights.sum()
    return chances


def reset(islands: tuple[Island, ...], rng: np.random.Generator) -> tuple[Island, ...]:
    """The worse half, each begun again with the best program of one that stays."""
    best = [max(island, key=lambda member: member.score) for island in islands]
    scores = np.array([member.score for member in best])
    order = np.lexsort((rng.random(len(best)), scores))  # equal ones by chance
    worse, better = np.split(order, [len(best) // 2])
    founders = {i: best[rng.choice(better)] for i in worse.tolist()}
    return tuple((founders[i],) if i in founders else island for i, island in enumerate(islands))


class IslandHost:
    """States are ``Islands``; prompts are of this host's own words, and so is the operator."""

    wants_instance_scores = True

    def __init__(self, setup: HostSetup) -> None:
        self._task = task_of(setup.problem)
        self._settings = settings_of(setup.settings, IslandSettings, "host_settings")

    def start(self, seed: Member) -> Islands:
        """The seed on every island."""
        return Islands(((seed,),) * self._settings.islands)

    def propose(self, state: Islands, rng: np.random.Generator) -> Request:
        """A reset where one is due, and the programs of an island as versions, worst first."""
        is_due = state.groups > 0 and state.groups % self._settings.reset == 0
        islands = reset(state.programs, rng) if is_due else state.programs
        asked = int(rng.integers(len(islands)))
        state = Islands(islands, state.groups, asked)
        versions = self._drawn(islands[asked], rng)
        prompt, bases = self._prompt(versions), versions[::-1]
        return Request(prompt, "improvement", bases, bases, state.archive, state, collapsed=is_due)

    def update(self, request: Request, results: Sequence[Evaluated], step: int) -> Transition:
        """Every valid program that its island does not have goes there."""
        state: Islands = request.state
        known = {member.id for member in state.programs[state.asked]}
        new: dict[str, Member] = {}
        for index, result in enumerate(results):
            if result.score is not None and result.id not in {*known, *new}:
                new[result.id] = member_of(result, request.operator, step, index)
        places = {member.index for member in new.values()}
        events = tuple(event_of(result, index in places) for index, result in enumerate(results))
        programs = list(state.programs)
        programs[state.asked] = (*programs[state.asked], *new.values())
        after = Islands(tuple(programs), state.groups + 1)
        return Transition(after, events, tuple(new.values()), after.archive)

    def _drawn(self, island: Island, rng: np.random.Generator) -> Island:
        """Clusters by a softmax of their scores, in each a program that is short; worst first, none twice."""
        clusters: dict[tuple[float, ...], list[Member]] = {}
        for member in island:
            clusters.setdefault(member.instance_scores, []).append(member)
        found = list(clusters.values())
        scores = np.array([programs[0].score for programs in found])
        chances = softmax(scores / self._settings.temperature)
        drawn = rng.choice(len(found), size=min(len(found), self._settings.shown), p=chances)
        versions = {member.id: member for i in drawn for member in [_short(found[i], rng)]}
        return tuple(sorted(versions.values(), key=lambda member: member.score))

    def _prompt(self, versions: Island) -> Prompt:
        task, last = self._task, len(versions) - 1
        name = task.signature.removeprefix("def ").partition("(")[0]
        codes = [re.sub(r"def \w+", f"def {name}_v{n}", one.code, count=1) for n, one in enumerate(versions)]
        shown = [f"{{{{{a.idea}}}}}\n```python\n{b}\n```" for a, b in zip(versions, codes, strict=True)]
        asked = f"Write {name}_v{last + 1}, an improved version of {name}_v{last}."
        return Prompt(f"{task.title}. {task.description}\n{ANSWER_RULES}", "\n".join([*shown, asked]))


def _short(programs: list[Member], rng: np.random.Generator) -> Member:
    lengths = np.array([float(len(member.code)) for member in programs])
    return programs[rng.choice(len(programs), p=softmax((lengths.min() - lengths) / (lengths.max() + 1e-6)))]
