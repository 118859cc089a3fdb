"""The population that a run started from, in addition to the seed heuristic (D45).

It stands in the heuristic store before anything that the run admitted: every member with its own operator and
score, step ``GIVEN``, and numbered from 0. A run that begins with the seed alone has none.
"""

from collections.abc import Iterable, Sequence

import msgspec

from search_to_signal.config import canonical_sha256
from search_to_signal.records.schema import HeuristicRecord

GIVEN = -1


def given(heuristics: Iterable[HeuristicRecord]) -> tuple[HeuristicRecord, ...]:
    """The population that a store says the run was given, in order."""
    return tuple(heuristic for heuristic in heuristics if heuristic.step == GIVEN)


def as_given(members: Iterable[HeuristicRecord]) -> tuple[HeuristicRecord, ...]:
    """Members of an archive, seeds left out, as a run that is given them records them."""
    kept = [member for member in members if member.operator is not None]
    return tuple(
        msgspec.structs.replace(member, step=GIVEN, index=number) for number, member in enumerate(kept)
    )


def population_sha256(population: Sequence[HeuristicRecord]) -> str:
    """SHA-256 of a given population in its canonical JSON form."""
    return canonical_sha256(population)
