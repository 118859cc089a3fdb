"""A host: hill climbing. It shows one of the best heuristics, and keeps an answer that beats them all."""

from collections.abc import Sequence

import numpy as np

from search_to_signal.base.errors import ConfigError
from search_to_signal.records.schema import ArchiveEvent
from search_to_signal.search.host import HostSetup, Request, Transition
from search_to_signal.search.hosts.calm.prompts import SIMPLIFICATION, build_prompt
from search_to_signal.search.member import Evaluated, Member, member_of

Archive = tuple[Member, ...]


class HillClimber:
    """States are archives, oldest first; ``width`` is how many of the newest may be shown."""

    def __init__(self, setup: HostSetup) -> None:
        if unknown := sorted(setup.settings.keys() - {"width"}):
            raise ConfigError(f"host_settings has {', '.join(unknown)}: this host has width alone")
        self._problem, self._width = setup.problem, int(setup.settings.get("width", 3))

    def start(self, seed: Member) -> Archive:
        """The seed alone."""
        return (seed,)

    def propose(self, state: Archive, rng: np.random.Generator) -> Request:
        """Ask for a variant of one of the newest."""
        newest = state[-self._width :]
        parent = newest[rng.integers(len(newest))]
        prompt = build_prompt(self._problem, SIMPLIFICATION, (parent,))
        return Request(prompt, SIMPLIFICATION, (parent,), (parent,), archive=state, state=state)

    def update(self, request: Request, results: Sequence[Evaluated], step: int) -> Transition:
        """Keep what beats everything before it; any other score counts as a duplicate."""
        archive, events = list(request.archive), []
        for index, found in enumerate(results):
            if found.score is None:
                events.append(ArchiveEvent.INVALID)
            elif found.score <= max(member.score for member in archive):
                events.append(ArchiveEvent.DUPLICATE_SCORE)
            else:
                events.append(ArchiveEvent.ADMITTED)
                archive.append(member_of(found, request.operator, step, index))
        admitted = tuple(archive[len(request.archive) :])
        return Transition(tuple(archive), tuple(events), admitted, archive=tuple(archive))
