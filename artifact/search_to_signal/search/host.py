"""The protocol of a search host: ``propose`` the next group's prompt, ``update`` the search by its results.

The loop does the rest: it samples, evaluates in isolation, credits, trains and records. Both methods are
pure, so that a run that was stopped, and a check of its records, replay the search and get the same.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from msgspec import UNSET

from search_to_signal.base.errors import ConfigError, MappingError
from search_to_signal.problems.base import Problem
from search_to_signal.records.manifest import Database
from search_to_signal.records.schema import OPERATOR_FORM, ArchiveEvent, HeuristicRecord, HostFacts
from search_to_signal.search.member import Evaluated, Member, Prompt, PromptForm, given_member


@dataclass(frozen=True)
class HostSetup:
    """What a host is made of: the problem, and what a profile says to it.

    ``settings`` is ``[host_settings]``, which a host reads and checks itself. ``form`` is how prompts are
    laid out, for a host that has more than one way. ``search`` is ``[search]``, whose knobs are CALM's.
    """

    problem: Problem
    settings: Mapping[str, Any] = field(default_factory=dict)
    form: PromptForm = "compact"
    search: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """The prompt of one group, and what its completions are compared with.

    ``state`` is the host's own, as drawing left it, and comes back to it with the answers. ``parents`` are
    the heuristics that the prompt was made of, primary first; ``bases`` those that it shows, best first. The
    best of ``archive`` is the frontier, and never leaves it. ``collapsed``: the archive was cut down before.
    ``operator`` is the host's own name of how the prompt asks; raises MappingError for what is no name.
    """

    prompt: Prompt
    operator: str
    parents: tuple[Member, ...]
    bases: tuple[Member, ...]
    archive: tuple[Member, ...]
    state: Any
    collapsed: bool = False

    def __post_init__(self) -> None:
        if not re.match(OPERATOR_FORM, self.operator):
            raise MappingError(
                f"operator {self.operator!r} is not a valid name: give up to 32 lower-case letters, digits "
                "and underscores that begin with a letter"
            )


@dataclass(frozen=True)
class Transition:
    """The search after a group: its state and archive, and what became of each completion.

    ``admitted`` are the new members in order of their completions, one for each event ``admitted``.
    ``stagnation`` counts groups without a new best; 0 where a host does not count.
    """

    state: Any
    events: tuple[ArchiveEvent, ...]
    admitted: tuple[Member, ...]
    archive: tuple[Member, ...]
    stagnation: int = 0


class Host(Protocol):
    """A search over one problem. A state is whatever the host makes it, and is never changed in place."""

    def start(self, seed: Member) -> Any:
        """Begin a search.

        Args:
            seed: The problem's seed heuristic, evaluated.

        Returns:
            The state before the first group.
        """

    def propose(self, state: Any, rng: np.random.Generator) -> Request:
        """Ask for the next group.

        Args:
            state: What ``start`` or the last ``update`` returned.
            rng: A stream of this step alone; every draw comes from it.

        Returns:
            The request of the next group.

        Raises:
            MappingError: The operator is no name.
        """

    def update(self, request: Request, results: Sequence[Evaluated], step: int) -> Transition:
        """Move the search on by a group's results; draws nothing.

        Args:
            request: What ``propose`` returned.
            results: (G,) evaluated completions in their order; a score is higher for a better program, and
                None for one that is not valid.
            step: The group's number, from 0.

        Returns:
            The state and archive after the group, with one event per completion.
        """


@runtime_checkable
class HasExposures(Protocol):
    """A host that knows how likely a completion is to be shown again, which mapping search_exposure reads."""

    def exposures(self, request: Request, results: Sequence[Evaluated]) -> tuple[float | None, ...]:
        """Say how likely each completion is to be shown again (paper, Search Exposure).

        Args:
            request: The group's request.
            results: (G,) evaluated completions in their order.

        Returns:
            (G,) probabilities in [0, 1]; None for a completion without a score.
        """


@runtime_checkable
class HasPopulations(Protocol):
    """A host that can begin with more than the seed heuristic."""

    def start_with(self, seed: Member, population: Sequence[Member]) -> Any:
        """Begin with a population (D45).

        Args:
            seed: The problem's seed heuristic, evaluated.
            population: Further members in their order, none of them equal to the seed.

        Returns:
            The state before the first group.
        """


@runtime_checkable
class HasDatabase(Protocol):
    """A host whose last state is written into its run directory.

    One with an attribute ``database_is_archive`` that is true has all programs of its archive there, and no
    other; its database is then held against size and best of the last archive.
    """

    def database(self, state: Any) -> Database:
        """Describe the last state.

        Args:
            state: The state after the last group.

        Returns:
            Its islands and clusters by the ids of their programs, all of which are in the heuristic store.
        """


def wants_instance_scores(host: Host) -> bool:
    """Whether results and members carry the score of each instance, beside their mean, and records have them.

    A host asks by an attribute of this name that is true, as one whose search tells programs apart by more
    than a single score does.
    """
    return bool(getattr(host, "wants_instance_scores", False))


HostFactory = Callable[[HostSetup], Host]
"""What a profile names. Raises ConfigError for settings that are not its own."""


def begin(host: Host, seed: Member, population: Sequence[HeuristicRecord] = ()) -> Any:
    """The state before the first group; raises ConfigError for a host that takes no population (D45)."""
    if not population:
        return host.start(seed)
    if not isinstance(host, HasPopulations):
        raise ConfigError("this host cannot begin with a given population: add a method start_with to it")
    return host.start_with(seed, tuple(map(given_member, population)))


def update_search(host: Host, request: Request, results: Sequence[Evaluated], step: int) -> Transition:
    """``host.update``, checked: raises MappingError for a transition that no record can hold."""
    transition = host.update(request, results, step)
    admitted = [index for index, event in enumerate(transition.events) if event is ArchiveEvent.ADMITTED]
    if len(transition.events) != len(results) or len(transition.admitted) != len(admitted):
        raise MappingError(
            f"step {step}: the host gave {len(transition.events)} events with {len(transition.admitted)} "
            f"admitted members for {len(results)} completions: give one event each, one member per admission"
        )
    return transition


def exposures_of(host: Host, request: Request, results: Sequence[Evaluated]) -> tuple[float | None, ...]:
    """Exposures (G,) by the host, all None where it has none; raises MappingError for what is none."""
    if not isinstance(host, HasExposures):
        return (None,) * len(results)
    exposures = tuple(host.exposures(request, results))
    lacking = [exposure is None for exposure in exposures] != [result.score is None for result in results]
    if lacking or any(exposure is not None and not 0.0 <= exposure <= 1.0 for exposure in exposures):
        raise MappingError(
            f"the host gave exposures {exposures} for {len(results)} completions: give one in [0, 1] for "
            "each that has a score, and None for any other"
        )
    return exposures


def database_of(host: HasDatabase, state: Any) -> Database:
    """The database of a state; raises MappingError for anything else than the record of one."""
    database = host.database(state)
    if not isinstance(database, Database):
        raise MappingError(
            f"the host's database is {type(database).__name__}: give records.database.Database"
        )
    return database


def host_facts(host: Host) -> HostFacts:
    """What a host can, as the manifests of its runs say it: by its methods, and by what it says of itself."""
    database: Literal["archive", "heuristics", "none"] = "none"
    if isinstance(host, HasDatabase):
        database = "archive" if getattr(host, "database_is_archive", False) else "heuristics"
    calm = bool(getattr(host, "is_calm", False))
    return HostFacts(
        calm=calm,
        exposures=isinstance(host, HasExposures),
        database=database,
        instance_scores=True if wants_instance_scores(host) else UNSET,
    )
