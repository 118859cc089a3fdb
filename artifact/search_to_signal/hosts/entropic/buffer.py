"""The reuse buffer: programs with how often they were built on, and the best that came of each.

Source: TTT-Discover (test-time-training/discover, PUCTSampler). Nothing here is changed in place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from search_to_signal.hosts.entropic.settings import BufferSettings
from search_to_signal.numerics import Floats
from search_to_signal.search.member import Member

_LEAST_SCALE = 1e-6


@dataclass(frozen=True)
class ReuseBuffer:
    """Programs, seed first; ``visits`` counts groups built on one or what came of it, ``total`` all groups.

    ``lineage`` has the ancestors of each, nearest first; ``reached`` the best score that a group built on it
    gave.
    """

    members: tuple[Member, ...]
    lineage: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    visits: Mapping[str, int] = field(default_factory=dict)
    reached: Mapping[str, float] = field(default_factory=dict)
    total: int = 0


def priors(scores: Floats) -> Floats:
    """(n,) weights that fall in line with the rank, the best first; of equal ones the first is better."""
    ranks = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
    weights = (len(scores) - ranks).astype(np.float64)
    shares: Floats = weights / weights.sum()
    return shares


def values(buffer: ReuseBuffer, settings: BufferSettings) -> Floats:
    """(n,) what the next program is chosen by: best reached, and a bonus for rank and few visits.

    Q + c * scale * P * sqrt(1 + T) / (1 + n), with the range of the scores, the seed left out, as scale.
    """
    scores = np.array([member.score for member in buffer.members])
    without_seed = scores[1:] if len(scores) > 1 else scores
    scale = max(float(without_seed.max() - without_seed.min()), _LEAST_SCALE)
    visits = np.array([buffer.visits.get(member.id, 0) for member in buffer.members])
    reached = np.array([buffer.reached.get(member.id, member.score) for member in buffer.members])
    bonus = settings.puct_c * scale * priors(scores) * np.sqrt(1.0 + buffer.total) / (1.0 + visits)
    result: Floats = reached + bonus
    return result


def chosen(buffer: ReuseBuffer, settings: BufferSettings) -> Member:
    """The program that the next group builds on: of the greatest value, then score, then age."""
    ranked = zip(values(buffer, settings), buffer.members, range(len(buffer.members)), strict=True)
    return max(ranked, key=lambda entry: (entry[0], entry[1].score, -entry[2]))[1]


def visited(buffer: ReuseBuffer, parent: Member, best: float | None) -> ReuseBuffer:
    """A group was built on ``parent``; ``best`` is the best score it gave, None where nothing was valid."""
    visits = dict(buffer.visits)
    for identity in (parent.id, *buffer.lineage.get(parent.id, ())):
        visits[identity] = visits.get(identity, 0) + 1
    reached = dict(buffer.reached)
    if best is not None:
        reached[parent.id] = max(best, reached.get(parent.id, best))
    return replace(buffer, visits=visits, reached=reached, total=buffer.total + 1)


def extended(buffer: ReuseBuffer, parent: Member, new: Sequence[Member], size: int) -> ReuseBuffer:
    """With new programs that came of ``parent``; of too many the seed and the best stay, in their order."""
    ancestors = (parent.id, *buffer.lineage.get(parent.id, ()))
    lineage = {**buffer.lineage, **{member.id: ancestors for member in new}}
    members = (*buffer.members, *new)
    if len(members) > size:
        best = sorted(members[1:], key=lambda member: -member.score)[: size - 1]
        kept = {member.id for member in best}
        members = (members[0], *(member for member in members[1:] if member.id in kept))
    return replace(buffer, members=members, lineage=lineage)
