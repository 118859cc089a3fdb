"""A recorded search, round by round: what a run that goes on and a bank of its prompts both start from."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from search_to_signal.base.errors import RecordError
from search_to_signal.base.seeding import stream
from search_to_signal.problems.base import Heuristic
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, STEPS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord, HeuristicRecord, StepRecord, as_given, given
from search_to_signal.run.config import RunConfig
from search_to_signal.search.host import Host, Request, Round, Transition, begin, update_search
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, state_of
from search_to_signal.search.hosts.calm.transition import replay
from search_to_signal.search.member import Member, given_member, heuristic_record, seed_member

# What a step and its completions say of a round that is drawn again.
_FACTS = ("operator", "collapse", "archive size", "stagnation", "archive events")


class ReplayedRound(NamedTuple):
    """A recorded round, the request that the host draws for it again, and what its completions do to it."""

    played: Round
    request: Request
    transition: Transition


def recorded_rounds(directory: Path) -> Iterator[Round]:
    """The rounds of a run directory in order; raises RecordError for a line that is unreadable or missing."""
    for _, played in _rounds(directory):
        yield played


def _rounds(directory: Path) -> Iterator[tuple[StepRecord, Round]]:
    steps = read_records(directory / STEPS, StepRecord)
    generations = read_records(directory / GENERATIONS, GenerationRecord)
    reading = read_manifest(directory).facts.idea_end
    for step, group, generation in zip_longest(steps, read_groups(directory), generations):
        if not (step and group and generation and len(group) == len(generation.completions)):
            raise RecordError(
                f"{directory} does not hold a step, its completions and their texts throughout: restore it"
            )
        facts, texts = (step.step, step.operator, step.collapsed), generation.completions
        yield step, Round(*facts, generation.prompt, group, texts, reading)


def recorded_seed(directory: Path) -> Member:
    """The seed heuristic as a run recorded it; raises RecordError where there is none."""
    seed = next(read_records(directory / HEURISTICS, HeuristicRecord), None)
    if seed is None:
        raise RecordError(f"{directory} holds no seed heuristic: restore it")
    member = given_member(seed)
    return seed_member(Heuristic(seed.idea, seed.code), seed.score, member.instance_scores)


def recorded_start(directory: Path, host: Host) -> Any:
    """The host's state before the first group of a run directory."""
    return begin(host, recorded_seed(directory), recorded_population(directory))


def recorded_population(directory: Path) -> tuple[HeuristicRecord, ...]:
    """The population that a run was given, empty for one that began with the seed alone (D45)."""
    return given(read_records(directory / HEURISTICS, HeuristicRecord))


def final_population(directory: Path, settings: SearchSettings) -> tuple[HeuristicRecord, ...]:
    """The archive of a finished run as its records leave it, for another run to begin with (D45).

    In the order of its last listing, the seed left out. Raises RecordError as ``replay`` does.
    """
    start = _start(directory)
    states = [start, *replay(start, recorded_rounds(directory), settings)]
    return as_given(map(heuristic_record, states[-1].listed().archive))


def replayed_rounds(directory: Path, host: Host, config: RunConfig) -> Iterator[ReplayedRound]:
    """The rounds of a run directory, drawn again from its seed and moved on by its recorded completions.

    Raises RecordError where records are missing, or the host's draws or decisions differ from them.
    """
    state = recorded_start(directory, host)
    for step, played in _rounds(directory):
        request = host.propose(state, stream(config.seed, "search", played.step))
        transition = update_search(host, request, played.results(), played.step)
        events = tuple(record.archive_event for record in played.records)
        recorded = (step.operator, step.collapsed, step.archive_size, step.stagnation, events)
        replayed = (
            request.operator,
            request.collapsed,
            len(transition.archive),
            transition.stagnation,
            transition.events,
        )
        if differing := [fact for fact, a, b in zip(_FACTS, recorded, replayed, strict=True) if a != b]:
            raise RecordError(
                f"{directory}: {', '.join(differing)} of step {played.step} cannot be drawn again and moved "
                "on as recorded: check that the records are complete and were made with these settings"
            )
        yield ReplayedRound(played, request, transition)
        state = transition.state


def recorded_states(directory: Path, settings: SearchSettings) -> Iterator[tuple[Round, SearchState]]:
    """The rounds of CALM's search, ours or released, each with the state before it, from records alone.

    Nothing is drawn, and no code that the records name is loaded. Raises RecordError as ``replay`` does.
    """
    state = _start(directory)
    rounds = list(recorded_rounds(directory))
    for played, after in zip(rounds, replay(state, rounds, settings), strict=True):
        yield played, state
        state = after


def _start(directory: Path) -> SearchState:
    seed = recorded_seed(directory)
    return state_of((seed, *map(given_member, recorded_population(directory))), (seed,))
