"""CALM's search states of a recorded run, from its records alone: no model, no evaluation, no draws."""

from collections.abc import Iterable, Iterator

from search_to_signal.errors import RecordError
from search_to_signal.hosts.calm.collapse import collapsed
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState
from search_to_signal.hosts.calm.transition import transition
from search_to_signal.search.round import Round


def drawn_from(state: SearchState, played: Round) -> SearchState:
    """The listed state that a round drew its parents from, after the collapse where it had one."""
    return (collapsed(state) if played.collapsed else state).listed()


def replay(state: SearchState, rounds: Iterable[Round], settings: SearchSettings) -> Iterator[SearchState]:
    """Yield the state after each round, starting from ``state``.

    Raises RecordError when what became of a completion differs from its record.
    """
    for played in rounds:
        before = drawn_from(state, played)
        results = played.results()
        state, events = transition(
            before, results, operator=played.operator, step=played.step, settings=settings
        )
        if events != tuple(record.archive_event for record in played.records):
            raise RecordError(
                f"step {played.step} replays to other archive events than recorded: check that the records "
                "start at the first step, are complete, and were made with these settings"
            )
        yield state
