"""EvoTune's search behind the protocol of a host: a database of islands that prompts are drawn from.

Source: Surina et al. 2025, Algorithm Discovery With LLMs; its repository is CLAIRE-Labo/EvoTune at 683b2452.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from search_to_signal.config import settings_of
from search_to_signal.hosts.calm.operators import CROSSOVER, REPLACEMENT
from search_to_signal.hosts.calm.prompts import REPLACEMENT_VARIANTS, build_prompt
from search_to_signal.hosts.evotune.database import IslandDatabase, initial_database, maintain
from search_to_signal.hosts.evotune.sampling import chance_of, draw_island, select_programs
from search_to_signal.hosts.evotune.settings import EvoTuneSettings
from search_to_signal.problems.base import Problem
from search_to_signal.records.database import Database
from search_to_signal.search.evaluated import Evaluated, event_of, member_of
from search_to_signal.search.host import HostSetup, Request, Transition
from search_to_signal.search.member import Member
from search_to_signal.search.prompt import PromptForm


class Drawn(NamedTuple):
    """The database of a request, and the island that its programs are of."""

    database: IslandDatabase
    island: int


@dataclass(frozen=True)
class EvoTuneHost:
    """The database for one problem; its states are ``IslandDatabase``, those of its requests ``Drawn``."""

    problem: Problem
    settings: EvoTuneSettings
    form: PromptForm = "compact"
    database_is_archive: ClassVar[bool] = True

    def start(self, seed: Member) -> IslandDatabase:
        """The seed heuristic on every island."""
        return initial_database(seed, self.settings)

    def propose(self, state: IslandDatabase, rng: np.random.Generator) -> Request:
        """Upkeep of the database, an island, and its programs in a prompt of CALM's words (D51)."""
        database, was_reset = maintain(state, self.settings, rng)
        island = draw_island(database, rng)
        programs = select_programs(database, island, self.settings, rng)
        operator = CROSSOVER if len(programs) > 1 else REPLACEMENT
        variant = int(rng.integers(REPLACEMENT_VARIANTS)) if operator == REPLACEMENT else 0
        prompt = build_prompt(self.problem, operator, programs, variant=variant, form=self.form)
        drawn = Drawn(database, island)
        return Request(prompt, operator, programs, programs, database.programs, drawn, was_reset)

    def update(self, request: Request, results: Sequence[Evaluated], step: int) -> Transition:
        """Keep every valid program that its island does not have (D52)."""
        drawn: Drawn = request.state
        known, new = set(drawn.database.known(drawn.island)), list[Member]()
        for index, result in enumerate(results):
            if result.score is not None and result.id not in known:
                known.add(result.id)
                new.append(member_of(result, request.operator, step, index))
        places = {member.index for member in new}
        events = tuple(event_of(result, index in places) for index, result in enumerate(results))
        pending = (*drawn.database.pending, *((drawn.island, member) for member in new))
        after = replace(drawn.database, pending=pending, groups=drawn.database.groups + 1)
        return Transition(after, events, tuple(new), after.programs)

    def database(self, state: IslandDatabase) -> Database:
        """Islands and waiting programs by their ids."""
        islands = tuple(tuple(member.id for member in island) for island in state.islands)
        waiting = tuple((place, member.id) for place, member in state.pending)
        return Database(groups=state.groups, islands=islands, waiting=waiting)

    def exposures(self, request: Request, results: Sequence[Evaluated]) -> tuple[float | None, ...]:
        """The chance of being shown by the next prompt, 0 for a program that the island has (D13)."""
        return tuple(self._chance(request.state, result) for result in results)

    def _chance(self, drawn: Drawn, result: Evaluated) -> float | None:
        if result.score is None:
            return None
        if result.id in drawn.database.known(drawn.island):
            return 0.0
        member = Member(result.idea, result.code, result.score, None, 0, 0, result.id)
        return chance_of(drawn.database, drawn.island, member, self.settings)


def evotune_host(setup: HostSetup) -> EvoTuneHost:
    """The host of a profile; raises ConfigError for settings that are not its own."""
    settings = settings_of(setup.settings, EvoTuneSettings, "host_settings")
    return EvoTuneHost(setup.problem, settings, setup.form)
