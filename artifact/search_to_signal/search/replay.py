"""The search states of a recorded run, from its records alone: no model, no evaluation, no draws."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from search_to_signal.errors import RecordError
from search_to_signal.programs.parsing import Proposal, parse
from search_to_signal.records.schema import ANY_FENCE, CompletionRecord, IdeaEnd, Operator
from search_to_signal.search.collapse import collapsed
from search_to_signal.search.settings import SearchSettings
from search_to_signal.search.state import SearchState
from search_to_signal.search.transition import Evaluated, transition


@dataclass(frozen=True)
class Round:
    """One recorded round: its step record's facts, its prompt, its completion records and their texts.

    ``idea_end`` is how its run reads texts (D37).
    """

    step: int
    operator: Operator
    collapsed: bool
    prompt: str
    records: Sequence[CompletionRecord]
    texts: Sequence[str]
    idea_end: IdeaEnd = ANY_FENCE

    def results(self) -> list[Evaluated]:
        """What the search saw of its completions; raises RecordError as ``evaluated``."""
        pairs = zip(self.records, self.texts, strict=True)
        return [evaluated(record, text, self.idea_end) for record, text in pairs]


def evaluated(record: CompletionRecord, text: str, idea_end: IdeaEnd) -> Evaluated:
    """What the search saw of a recorded completion; raises RecordError when text and record disagree."""
    proposal = parse(text, idea_end)
    if isinstance(proposal, Proposal):
        return Evaluated(
            record.outcome, proposal.idea, proposal.code, record.score, record.program_sha256, text
        )
    if record.score is not None:
        raise RecordError(
            f"step {record.step}, completion {record.index} is recorded as {record.outcome.value}, but its "
            f"text is {proposal.outcome.value}: the texts belong to another run or were edited"
        )
    return Evaluated(record.outcome)


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
