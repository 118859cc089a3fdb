"""What one group does to the search: a pure function of the state and the evaluated completions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_to_signal.errors import RecordError
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.records.schema import ArchiveEvent, Operator, Outcome
from search_to_signal.search.archive import equal, frontier, holds, scores
from search_to_signal.search.collapse import stagnation_after
from search_to_signal.search.injection import remembered
from search_to_signal.search.settings import SearchSettings
from search_to_signal.search.state import Member, SearchState


@dataclass(frozen=True)
class Evaluated:
    """What the search sees of a completion. ``score`` is higher-is-better and present only when valid.

    ``program`` is the program_sha256 of the code where the caller has it already, else it is computed.
    ``response`` is the whole completion, in which an injected component is looked for.
    Raises RecordError when outcome and score contradict each other (D17).
    """

    outcome: Outcome
    idea: str = ""
    code: str = ""
    score: float | None = None
    program: str | None = None
    response: str = ""

    @property
    def id(self) -> str:
        """The hash of its canonical code, as a member's."""
        return self.program or program_sha256(self.code)

    def __post_init__(self) -> None:
        finite = self.score is not None and math.isfinite(self.score)
        if finite != (self.outcome is Outcome.VALID) or (self.score is not None and not finite):
            raise RecordError(
                f"outcome {self.outcome.value} with score {self.score}: a valid completion has a finite "
                "score and any other has none; a non-finite score is a runtime failure"
            )


def event_of(result: Evaluated, admitted: bool) -> ArchiveEvent:
    """What became of a completion, where a valid one that was not admitted is a duplicate."""
    if result.score is None:
        return ArchiveEvent.INVALID
    return ArchiveEvent.ADMITTED if admitted else ArchiveEvent.DUPLICATE_SCORE


def _admitted(
    state: SearchState, results: Sequence[Evaluated], operator: Operator, step: int
) -> tuple[tuple[Member, ...], tuple[ArchiveEvent, ...]]:
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
            new.append(Member(result.idea, result.code, result.score, operator, step, index, result.id))
    return tuple(new), tuple(events)


def _components(
    injected: tuple[str, ...],
    results: Sequence[Evaluated],
    events: Sequence[ArchiveEvent],
    operator: Operator,
    settings: SearchSettings,
) -> tuple[str, ...]:
    if operator is not Operator.INJECTION:
        return injected
    ignored = {ArchiveEvent.INVALID}
    if settings.components == "admitted":
        ignored.add(ArchiveEvent.DUPLICATE_SCORE)
    told = (result.response for result, event in zip(results, events, strict=True) if event not in ignored)
    return remembered(injected, told)


def transition(
    state: SearchState,
    results: Sequence[Evaluated],
    *,
    operator: Operator,
    step: int,
    settings: SearchSettings,
) -> tuple[SearchState, tuple[ArchiveEvent, ...]]:
    """Return the state after a group, and what became of each completion, in order.

    ``state`` is that of the draw, ``operator`` the one of the prompt. Admission goes completion by
    completion, so the second of two equal children is a duplicate (HOST.md, points 7, 13 and 15). The round
    ends here: its used prompts are forgotten.
    """
    new, events = _admitted(state, results, operator, step)
    best = frontier(state.archive)
    improved = any(r.score is not None and (best is None or r.score > best) for r in results)
    after = replace(
        state.extended(new),
        used_prompts=frozenset(),
        injected=_components(state.injected, results, events, operator, settings),
        stagnation=stagnation_after(state.stagnation, len(state.archive), improved, settings),
    )
    return after, events
