"""What a search sees of a completion, and what it says became of it."""

import math
from dataclasses import dataclass

from search_to_signal.errors import RecordError
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.records.schema import ArchiveEvent, Outcome


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
