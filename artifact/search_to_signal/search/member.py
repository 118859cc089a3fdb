"""A heuristic that a search keeps, and its record."""

from dataclasses import dataclass

from msgspec import UNSET

from search_to_signal.problems.base import Heuristic
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.records.schema import HeuristicRecord, Operator


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
