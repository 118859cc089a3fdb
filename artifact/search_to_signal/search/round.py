"""One recorded round as a host is given it again: no model, no evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from search_to_signal.errors import RecordError
from search_to_signal.programs.parsing import Proposal, parse
from search_to_signal.records.schema import ANY_FENCE, CompletionRecord, IdeaEnd, Operator
from search_to_signal.search.evaluated import Evaluated


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
        idea, code, program = proposal.idea, proposal.code, record.program_sha256
        scores = () if record.instance_scores is UNSET else record.instance_scores
        return Evaluated(record.outcome, idea, code, record.score, program, text, scores)
    if record.score is not None:
        raise RecordError(
            f"step {record.step}, completion {record.index} is recorded as {record.outcome.value}, but its "
            f"text is {proposal.outcome.value}: the texts belong to another run or were edited"
        )
    return Evaluated(record.outcome)
