"""Which completions of a group CALM's archive admits (HOST.md, points 6 and 7)."""

from collections.abc import Sequence

from search_to_signal.hosts.calm.state import SearchState, equal, holds
from search_to_signal.records.schema import ArchiveEvent, Operator
from search_to_signal.search.archive import scores
from search_to_signal.search.evaluated import Evaluated, member_of
from search_to_signal.search.member import Member


def admitted(
    state: SearchState, results: Sequence[Evaluated], operator: Operator, step: int
) -> tuple[tuple[Member, ...], tuple[ArchiveEvent, ...]]:
    """The new members of a group, and what became of each completion: admitted, a duplicate or invalid.

    Admission goes completion by completion, so the second of two equal children is a duplicate.
    """
    archived = scores(state.archive)
    new: list[Member] = []
    events: list[ArchiveEvent] = []
    for index, result in enumerate(results):
        if result.score is None:
            events.append(ArchiveEvent.INVALID)
        elif holds(archived, result.score) or any(equal(m.score, result.score) for m in new):
            events.append(ArchiveEvent.DUPLICATE_SCORE)
        else:
            events.append(ArchiveEvent.ADMITTED)
            new.append(member_of(result, operator, step, index))
    return tuple(new), tuple(events)
