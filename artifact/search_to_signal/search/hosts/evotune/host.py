"""EvoTune's search: a database of programs as pure functions of a frozen state, and its host."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from search_to_signal.base.numerics import Floats
from search_to_signal.base.settings import Range, Settings, settings_of
from search_to_signal.problems.base import Problem
from search_to_signal.records.manifest import Database
from search_to_signal.search.host import HostSetup, Request, Transition
from search_to_signal.search.hosts.calm import prompts
from search_to_signal.search.member import Evaluated, Member, PromptForm, event_of, member_of

# The knobs of the program database, by EvoTune's names (CLAIRE-Labo/EvoTune, configs/config.yaml).

Period = Annotated[int, Range(0, 1_000_000_000)]
Share = Annotated[float, Range(0, 1)]


class EvoTuneSettings(Settings, frozen=True, kw_only=True):
    """Islands, sampling and upkeep of the database; the defaults are EvoTune's for TSP.

    A prompt shows ``functions_per_prompt`` programs of one of ``num_islands``. Programs of one score, times
    ``score_scale`` and rounded to three decimals, are a cluster; of the best ``initial_percentile`` of the
    clusters, which falls to ``final_percentile`` over ``num_rounds`` groups, those are drawn by a softmax of
    temperature ``temp``, or the best ones without ``temp_sampling_flag``. Programs are registered every
    ``num_cont_rounds`` groups. Every ``migration_period`` groups an island gives its best program to the
    next; every ``reset_period`` the weaker half begins again with a program of the others; 0 is never (D50).
    """

    TABLE = "host_settings"
    functions_per_prompt: Annotated[int, Range(1, 2)] = 2
    num_islands: Annotated[int, Range(1, 1000)] = 6
    temp_sampling_flag: bool = True
    temp: Annotated[float, Range(0, 1e9, above=True)] = 10.0
    initial_percentile: Share = 0.3
    final_percentile: Share = 0.2
    num_rounds: Annotated[int, Range(1, 1_000_000_000)] = 2701
    num_cont_rounds: Annotated[int, Range(1, 1_000_000_000)] = 100
    score_scale: Annotated[float, Range(0, 1e9, above=True)] = 100.0
    migration_period: Period = 0
    reset_period: Period = 0


# The program database: islands of programs, and what changes them. Nothing here is changed in place.
#
# EvoTune's database is FunSearch's (Nature 625, 468) without its reset; migration is this package's (D50).

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


# Which island a prompt is drawn from, and which programs of it, as EvoTune draws them.

Clusters = dict[float, list[Member]]

# So that no cluster is out of reach, however low its score.
_LEAST = 1e-20


def percentile(database: IslandDatabase, settings: EvoTuneSettings) -> float:
    """The share of the clusters that is drawn from: it falls in line with the batches of groups."""
    batch = database.groups - database.groups % settings.num_cont_rounds
    progress = min(batch / settings.num_rounds, 1.0)
    return settings.initial_percentile - (settings.initial_percentile - settings.final_percentile) * progress


def clusters(island: Island, settings: EvoTuneSettings) -> Clusters:
    """The programs of an island by scaled and rounded score, in order of registration."""
    by_score: Clusters = {}
    for member in island:
        by_score.setdefault(round(settings.score_scale * member.score, 3), []).append(member)
    return by_score


def in_percentile(scores: Floats, share: float, least: int) -> Floats:
    """The scores above the percentile, all where no more than ``least`` would be left."""
    cut = np.percentile(scores, 100 - 100 * share, method="nearest")
    above: Floats = scores[scores > cut]
    return above if len(above) > least else scores


def softmax(logits: Floats, temperature: float) -> Floats:
    """Probabilities (n,), each above 0."""
    weights = np.exp((logits - logits.max()) / temperature) + _LEAST
    probabilities: Floats = weights / weights.sum()
    return probabilities


def shortest_first(programs: list[Member]) -> Floats:
    """(n,) probabilities within a cluster: shorter programs are likelier."""
    lengths = np.array([float(len(member.code)) for member in programs])
    return softmax(-(lengths - lengths.min()) / (lengths.max() + 1e-6), 1.0)


def drawable(clusters_of: Clusters, share: float, settings: EvoTuneSettings) -> tuple[Floats, Floats, int]:
    """The scores that a prompt draws from, their chances in one draw, and how many are drawn."""
    count = min(len(clusters_of), settings.functions_per_prompt)
    scores = np.array(list(clusters_of))
    if not settings.temp_sampling_flag:
        best = np.sort(scores)[::-1][:count]
        return best, np.full(count, 1 / count), count
    scores = in_percentile(scores, share, count)
    return scores, softmax(scores, settings.temp), count


def select_programs(
    database: IslandDatabase, island: int, settings: EvoTuneSettings, rng: np.random.Generator
) -> tuple[Member, ...]:
    """The programs for a prompt, best first: one each of distinct clusters of an island."""
    by_score = clusters(database.islands[island], settings)
    scores, chances, count = drawable(by_score, percentile(database, settings), settings)
    drawn = rng.choice(scores, size=count, replace=False, p=chances)
    programs = [by_score[float(score)] for score in drawn]
    members = [own[rng.choice(len(own), p=shortest_first(own))] for own in programs]
    return tuple(sorted(members, key=lambda member: member.score, reverse=True))


def chance_of(database: IslandDatabase, island: int, member: Member, settings: EvoTuneSettings) -> float:
    """How likely the next prompt shows a program, registered on its island alone; upkeep is left out."""
    by_score = clusters((*database.islands[island], member), settings)
    scores, chances, count = drawable(by_score, percentile(database, settings), settings)
    (own,) = np.nonzero([any(program is member for program in by_score[float(score)]) for score in scores])
    if not len(own):
        return 0.0
    others = np.delete(chances, own[0])
    # Of two draws without replacement: first, or second after any other.
    first = chances[own[0]]
    drawn = first if count == 1 else first + float((others * first / (1 - others)).sum())
    cluster = by_score[float(scores[own[0]])]
    return float(min(drawn, 1.0) * shortest_first(cluster)[-1] / len(database.islands))


# EvoTune's search behind the protocol of a host: a database of islands that prompts are drawn from.
#
# Source: Surina et al. 2025, Algorithm Discovery With LLMs; its repository is CLAIRE-Labo/EvoTune at
# 683b2452.


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
        return IslandDatabase(((seed,),) * self.settings.num_islands)

    def propose(self, state: IslandDatabase, rng: np.random.Generator) -> Request:
        """Upkeep of the database, an island, and its programs in a prompt of CALM's words (D51)."""
        database, was_reset = maintain(state, self.settings, rng)
        island = int(rng.integers(len(database.islands)))
        programs = select_programs(database, island, self.settings, rng)
        operator = prompts.CROSSOVER if len(programs) > 1 else prompts.REPLACEMENT
        variant = int(rng.integers(prompts.REPLACEMENT_VARIANTS)) if operator == prompts.REPLACEMENT else 0
        prompt = prompts.build_prompt(self.problem, operator, programs, variant=variant, form=self.form)
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


def host(setup: HostSetup) -> EvoTuneHost:
    """The host of a profile; raises ConfigError for settings that are not its own."""
    settings = settings_of(setup.settings, EvoTuneSettings, "host_settings")
    return EvoTuneHost(setup.problem, settings, setup.form)
