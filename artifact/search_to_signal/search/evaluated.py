"""What a search sees of a completion, and what it says became of it."""

import math
from dataclasses import dataclass

from search_to_signal.errors import RecordError
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.records.schema import ArchiveEvent, Outcome
from search_to_signal.search.member import Member


@dataclass(frozen=True)
class Evaluated:
    """What the search sees of a completion. ``score`` is higher-is-better and present only when valid.

    ``program`` is the program_sha256 of the code where the caller has it already, else it is computed.
    ``response`` is the whole completion. ``instance_scores`` are those whose mean ``score`` is, in order of
    the instances; empty unless the host asks for them.
    Raises RecordError when outcome and score contradict each other (D17).
    """

    outcome: Outcome
    idea: str = ""
    code: str = ""
    score: float | None = None
    program: str | None = None
    response: str = ""
    instance_scores: tuple[float, ...] = ()

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


def member_of(result: Evaluated, operator: str, step: int, index: int) -> Member:
    """The member that a valid completion becomes; raises RecordError for one without a score."""
    if result.score is None:
        raise RecordError(f"step {step}, completion {index} has no score: a search keeps valid ones alone")
    scores = result.instance_scores
    return Member(result.idea, result.code, result.score, operator, step, index, result.id, scores)
