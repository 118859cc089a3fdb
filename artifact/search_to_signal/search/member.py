"""A heuristic that a search keeps, and its record."""

from dataclasses import dataclass

import msgspec

from search_to_signal.problems.base import Heuristic
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.records.schema import HeuristicRecord, Operator


@dataclass(frozen=True)
class Member:
    """A heuristic that a search keeps. ``score`` is higher-is-better; seeds have no operator.

    ``step`` and ``index`` say which completion it came from, ``id`` is the hash of its canonical code.
    """

    idea: str
    code: str
    score: float
    operator: Operator | None
    step: int
    index: int
    id: str


def seed_member(seed: Heuristic, score: float) -> Member:
    """A problem's seed heuristic with its score."""
    return Member(seed.idea, seed.code, score, None, step=0, index=0, id=program_sha256(seed.code))


def given_member(record: HeuristicRecord) -> Member:
    """A member of a population that a run was given."""
    return msgspec.convert(record, Member, from_attributes=True)


def heuristic_record(member: Member) -> HeuristicRecord:
    """The record of an archived heuristic."""
    return msgspec.convert(member, HeuristicRecord, from_attributes=True)
