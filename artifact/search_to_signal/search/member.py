"""What a search keeps and shows: a member, a prompt, an evaluated completion, the archive."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from search_to_signal.base.errors import RecordError
from search_to_signal.problems.base import Heuristic
from search_to_signal.records.schema import ArchiveEvent, HeuristicRecord, Operator, Outcome
from search_to_signal.sandbox.programs import program_sha256


@dataclass(frozen=True)
class Member:
    """A heuristic that a search keeps. ``score`` is higher-is-better; seeds have no operator.

    ``step`` and ``index`` say which completion it came from, ``id`` is the hash of its canonical code.
    ``instance_scores`` are empty unless the host asks for them.
    """

    idea: str
    code: str
    score: float
    operator: Operator | None
    step: int
    index: int
    id: str
    instance_scores: tuple[float, ...] = ()


def seed_member(seed: Heuristic, score: float, instance_scores: tuple[float, ...] = ()) -> Member:
    """A problem's seed heuristic with its score."""
    identity = program_sha256(seed.code)
    return Member(seed.idea, seed.code, score, None, 0, 0, identity, instance_scores)


def given_member(record: HeuristicRecord) -> Member:
    """The member that a record tells of: a seed, or one of a population that a run was given."""
    scores = () if record.instance_scores is UNSET else record.instance_scores
    place = (record.step, record.index)
    return Member(record.idea, record.code, record.score, record.operator, *place, record.id, scores)


def heuristic_record(member: Member) -> HeuristicRecord:
    """The record of an archived heuristic."""
    return HeuristicRecord(
        id=member.id,
        step=member.step,
        index=member.index,
        operator=member.operator,
        idea=member.idea,
        code=member.code,
        score=member.score,
        instance_scores=member.instance_scores or UNSET,
    )


PromptForm = Literal["compact", "released"]
"""How a host that has both lays its prompts out (D36)."""


@dataclass(frozen=True)
class Prompt:
    """The two chat messages of one prompt."""

    system: str
    user: str


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
        raise RecordError(
            f"step {step}, completion {index} has no score: a search can only keep valid completions"
        )
    scores = result.instance_scores
    return Member(result.idea, result.code, result.score, operator, step, index, result.id, scores)


# Questions to an archive, a sequence of members. Scores are higher-is-better.


def scores(archive: Sequence[Member]) -> NDArray[np.float64]:
    """(n,) scores in order of the archive."""
    return np.array([member.score for member in archive], dtype=np.float64)


def frontier(archive: Sequence[Member]) -> float | None:
    """The best score, or None for an empty archive."""
    return max((member.score for member in archive), default=None)


def nearest(archived: NDArray[np.float64], score: float) -> float | None:
    """Distance to the nearest of the archived scores (n,), or None where there are none."""
    return float(np.abs(archived - score).min()) if len(archived) else None


def archive_gap(archive: Sequence[Member], score: float) -> float | None:
    """Distance to the nearest archived score, or None for an empty archive."""
    return nearest(scores(archive), score)
