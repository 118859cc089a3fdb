"""The program database: islands of programs, and what changes them. Nothing here is changed in place.

EvoTune's database is FunSearch's (Nature 625, 468) without its reset; migration is this package's (D50).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from search_to_signal.hosts.evotune.settings import EvoTuneSettings
from search_to_signal.search.member import Member

Island = tuple[Member, ...]


@dataclass(frozen=True)
class IslandDatabase:
    """Islands in order of registration, programs waiting for theirs, and the number of groups so far."""

    islands: tuple[Island, ...]
    pending: tuple[tuple[int, Member], ...] = ()
    groups: int = 0

    @property
    def programs(self) -> tuple[Member, ...]:
        """Every distinct program, waiting ones last."""
        everywhere = [member for island in self.islands for member in island]
        return _distinct([*everywhere, *(member for _, member in self.pending)])

    def known(self, island: int) -> frozenset[str]:
        """The ids of the programs that an island has, or will have."""
        waiting = (member.id for place, member in self.pending if place == island)
        return frozenset([*(member.id for member in self.islands[island]), *waiting])


def _distinct(members: Iterable[Member]) -> Island:
    return tuple({member.id: member for member in members}.values())


def best(island: Island) -> Member:
    """The best program of an island; of equal ones the first."""
    return max(island, key=lambda member: member.score)


def initial_database(seed: Member, settings: EvoTuneSettings) -> IslandDatabase:
    """Return a database whose islands hold the seed heuristic alone."""
    return IslandDatabase(((seed,),) * settings.num_islands)


def register_waiting(database: IslandDatabase) -> IslandDatabase:
    """The waiting programs on their islands."""
    islands = [list(island) for island in database.islands]
    for place, member in database.pending:
        islands[place].append(member)
    return replace(database, islands=tuple(_distinct(island) for island in islands), pending=())


def migrate(database: IslandDatabase) -> IslandDatabase:
    """Every island with the best program of the one before it, all at once."""
    migrants = [best(island) for island in database.islands]
    islands = [_distinct((*island, migrants[i - 1])) for i, island in enumerate(database.islands)]
    return replace(database, islands=tuple(islands))


def reset(database: IslandDatabase, rng: np.random.Generator) -> IslandDatabase:
    """The weaker half of the islands, rounded down, each begun again with the best of an island that stays.

    Of islands with equal bests the first are weaker.
    """
    order = sorted(range(len(database.islands)), key=lambda i: best(database.islands[i]).score)
    weaker, kept = order[: len(order) // 2], order[len(order) // 2 :]
    founders = {i: best(database.islands[kept[rng.integers(len(kept))]]) for i in weaker}
    islands = [(founders[i],) if i in founders else island for i, island in enumerate(database.islands)]
    return replace(database, islands=tuple(islands))


def is_due(period: int, groups: int) -> bool:
    """Whether an event with this period in groups comes before the next group."""
    return period > 0 and groups > 0 and groups % period == 0


def maintain(
    database: IslandDatabase, settings: EvoTuneSettings, rng: np.random.Generator
) -> tuple[IslandDatabase, bool]:
    """Apply what is due before a group: registration, migration, reset; returns whether there was a reset."""
    if is_due(settings.num_cont_rounds, database.groups):
        database = register_waiting(database)
    if is_due(settings.migration_period, database.groups):
        database = migrate(database)
    if not is_due(settings.reset_period, database.groups) or len(database.islands) < 2:
        return database, False
    return reset(database, rng), True
