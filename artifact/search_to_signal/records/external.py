"""Groups from outside: JSON Lines, one group per line, as in ``group.schema.json`` in this directory."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from search_to_signal.errors import UNREADABLE, IllFormedGroupError, RecordError
from search_to_signal.records.files import read_lines
from search_to_signal.records.groups import OUTCOMES, GroupBatch, floats, padded
from search_to_signal.records.schema import Outcome

SCHEMA = Path(__file__).with_name("group.schema.json")
_CODE = {outcome: code for code, outcome in enumerate(OUTCOMES)}


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One evaluated completion; equal ``response`` strings within a group mean identical responses."""

    outcome: Outcome
    score: float | None = None
    response: str | None = None
    archive_gap: Annotated[float, msgspec.Meta(ge=0.0)] | None = None
    exposure: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None
    matches_base_code: bool = False


class ExternalGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The completions of one prompt with their pre-generation context (D22).

    ``archive`` holds the archived scores; where it is given, frontier and archive gaps follow from it.
    """

    candidates: tuple[Candidate, ...]
    group: str = ""
    problem: str = ""
    bases: tuple[float, ...] = ()
    frontier: float | None = None
    archive: tuple[float, ...] | None = None


def read_external(path: Path) -> Iterator[ExternalGroup]:
    """Yield the groups of a file in order.

    Raises RecordError, naming file and line, for a line that does not follow the schema.
    """
    decoder = msgspec.json.Decoder(ExternalGroup)
    for number, line in enumerate(read_lines(path), start=1):
        try:
            group = decoder.decode(line)
        except UNREADABLE as error:
            raise RecordError(f"{path}:{number}: not a group ({error}); see {SCHEMA.name}") from error
        if not group.candidates:
            raise RecordError(f"{path}:{number}: a group without candidates; leave the line out")
        if any((c.outcome is Outcome.VALID) != (c.score is not None) for c in group.candidates):
            raise RecordError(f"{path}:{number}: give a score to every valid candidate and to no other")
        yield group


def external_batch(groups: Sequence[ExternalGroup]) -> GroupBatch:
    """Stack external groups of one size into arrays. Raises IllFormedGroupError when they do not stack."""
    sizes = {len(group.candidates) for group in groups}
    if len(sizes) != 1:
        raise IllFormedGroupError(f"cannot stack groups of sizes {sorted(sizes)}: pass groups of one size")
    return GroupBatch(
        outcome=np.array([[_CODE[c.outcome] for c in g.candidates] for g in groups], dtype=np.int8),
        score=floats([[c.score for c in g.candidates] for g in groups]),
        bases=padded([group.bases for group in groups]),
        frontier=floats([_frontier(group) for group in groups]),
        archive_gap=floats([_gaps(group) for group in groups]),
        exposure=floats([[c.exposure for c in g.candidates] for g in groups]),
        response=np.array([_responses(group) for group in groups], dtype=np.int64),
        matches_base_code=np.array([[c.matches_base_code for c in g.candidates] for g in groups], dtype=bool),
    )


def _frontier(group: ExternalGroup) -> float | None:
    if group.frontier is not None or not group.archive:
        return group.frontier
    return max(group.archive)


def _gaps(group: ExternalGroup) -> list[float | None]:
    if not group.archive:
        return [candidate.archive_gap for candidate in group.candidates]
    archive = group.archive
    scores = (candidate.score for candidate in group.candidates)
    return [None if score is None else min(abs(score - old) for old in archive) for score in scores]


def _responses(group: ExternalGroup) -> list[int]:
    """Row-wise codes: a response without a text equals no other."""
    first: dict[str, int] = {}
    return [
        index if c.response is None else first.setdefault(c.response, index)
        for index, c in enumerate(group.candidates)
    ]
