"""CALM's archive, replayed: does it follow from the recorded scores? (HOST.md, points 6, 7, 13 and 14)"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from search_to_signal.records.population import GIVEN, given
from search_to_signal.records.reader import HEURISTICS, Group
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, HeuristicRecord, StepRecord
from search_to_signal.rewards.base import EQUAL_SCORES


class _Members:
    """An archive's members in order, by id, and by stripped code; ``ranked`` are their scores, rising."""

    def __init__(self, members: Iterable[HeuristicRecord]) -> None:
        self.in_order: list[HeuristicRecord] = []
        self.by_id: dict[str, list[HeuristicRecord]] = defaultdict(list)
        self.by_code: dict[str, list[HeuristicRecord]] = defaultdict(list)
        self.ranked: list[float] = []
        self.add(members)

    def add(self, members: Iterable[HeuristicRecord]) -> None:
        for member in members:
            self.in_order.append(member)
            self.by_id[member.id].append(member)
            self.by_code[member.code.strip()].append(member)
            insort(self.ranked, member.score)

    def named(self, ids: Iterable[str]) -> list[HeuristicRecord]:
        """Those of some ids, in no order."""
        return [member for name in set(ids) for member in self.by_id.get(name, ())]

    def with_code_of(self, members: Iterable[HeuristicRecord]) -> list[HeuristicRecord]:
        """Those whose code is that of one of some members, in no order."""
        codes = {member.code.strip() for member in members}
        return [member for code in codes for member in self.by_code[code]]


@dataclass
class CalmArchive:
    """The archive of a run, moved on group by group from its seed heuristics alone.

    ``waiting`` are the stored heuristics that no completion has been found for yet, in order. ``own_rule`` is
    for a host whose rule of admission is not known for certain (HOST.md, point 7): what it admitted, and how
    it counts stagnation, is then taken from the records.
    """

    population: int | None
    seeds: tuple[HeuristicRecord, ...]
    members: _Members
    waiting: list[HeuristicRecord]
    stagnation: int = 0
    admitted: list[tuple[int, int, float]] = field(default_factory=list)
    own_rule: bool = False

    @classmethod
    def of(
        cls, heuristics: list[HeuristicRecord], search: dict[str, Any], own_rule: bool = False
    ) -> "CalmArchive":
        """The archive before the first group: seeds, which have no operator, and a given population."""
        seeds = tuple(heuristic for heuristic in heuristics if heuristic.operator is None)
        waiting = [h for h in heuristics if h.operator is not None and h.step != GIVEN]
        population = None if own_rule else search.get("population_size")
        return cls(population, seeds, _Members([*seeds, *given(heuristics)]), waiting, own_rule=own_rule)

    def problems(self, group: Group, step: StepRecord) -> Iterator[str]:
        """Move on by one group; yields what its records say otherwise."""
        if step.collapsed:
            self._collapse()
        where, ranked = f"step {step.step}", self.members.ranked
        yield from self._context(group, ranked[-1] if ranked else None)
        improved = any(record.score is not None and record.score > ranked[-1] for record in group)
        before, fresh = len(ranked), list[HeuristicRecord]()
        for record in group:
            if record.score is not None:
                yield from self._judged(record, record.score, ranked, fresh)
        self.members.add(fresh)
        if step.archive_size != len(ranked):
            yield f"{where}: archive_size is {step.archive_size}, its completions say {len(ranked)}"
        if self.population is not None:
            self.stagnation = 0 if improved else self.stagnation + (before >= self.population)
            if step.stagnation != self.stagnation:
                yield f"{where}: stagnation is {step.stagnation}, the records say {self.stagnation}"

    def _collapse(self) -> None:
        self.stagnation = 0
        best = max(self.members.in_order, key=lambda member: member.score)
        kept = (seed for seed in self.seeds if abs(seed.score - best.score) >= EQUAL_SCORES)
        self.members = _Members([best, *kept])

    def _context(self, group: Group, best: float | None) -> Iterator[str]:
        parents = self.members.named(group[0].parents)
        bases = self.members.with_code_of(parents)
        size, known, programs = len(self.members.ranked), self.members.by_id, {member.id for member in bases}
        expected = tuple(sorted((member.score for member in bases), reverse=True))
        # Programs that differ in comments alone share an id, which then does not say which one was shown.
        if len(parents) > len(set(group[0].parents)) and set(group[0].base_scores) <= set(expected):
            expected = group[0].base_scores
        strangers = any(name not in known for name in group[0].parents)
        for record in group:
            if (record.archive_size, record.frontier) != (size, best):
                yield (
                    f"{_place(record)}: archive of {record.archive_size} with frontier {record.frontier}, "
                    f"the records before it say {size} with {best}"
                )
            if self.own_rule:
                continue
            if strangers or record.parents != group[0].parents:
                yield f"{_place(record)}: its parents are not in the archive"
            if record.base_scores != expected:
                given = record.base_scores
                yield f"{_place(record)}: base_scores are {given}, those of its parents are {expected}"
            if record.matches_base_code != (record.program_sha256 in programs):
                yield f"{_place(record)}: matches_base_code is not what its program says"

    def _judged(
        self, record: CompletionRecord, score: float, ranked: list[float], fresh: list[HeuristicRecord]
    ) -> Iterator[str]:
        gap = _distance(ranked, score)
        if record.archive_gap != gap:
            told = f"score {score} is {gap} from the archive, recorded is {record.archive_gap}"
            yield f"{_place(record)}: {told}"
        near = gap is not None and gap < EQUAL_SCORES
        taken = near or any([abs(other.score - score) < EQUAL_SCORES for other in fresh])
        if self.own_rule:
            taken = record.archive_event is not ArchiveEvent.ADMITTED
        event = ArchiveEvent.DUPLICATE_SCORE if taken else ArchiveEvent.ADMITTED
        if record.archive_event is not event:
            told = f"archive event is {record.archive_event.value}, its score says {event.value}"
            yield f"{_place(record)}: {told}"
        if not taken:
            fresh.append(self._stored(record, score))
            self.admitted.append((record.step, record.index, score))

    def _stored(self, record: CompletionRecord, score: float) -> HeuristicRecord:
        """The stored heuristic of an admission; one made up where the store lacks it, which is told later."""
        if self.waiting and (self.waiting[0].step, self.waiting[0].index) == (record.step, record.index):
            return self.waiting.pop(0)
        identity = record.program_sha256 or ""
        return HeuristicRecord(
            id=identity,
            step=record.step,
            index=record.index,
            operator=record.operator,
            idea="",
            code=identity,
            score=score,
        )

    def store_problems(self, heuristics: list[HeuristicRecord]) -> Iterator[str]:
        """Whether the heuristic store holds exactly what was admitted, in order; call it at the end."""
        return admission_problems(heuristics, self.admitted)


def admission_problems(
    heuristics: Sequence[HeuristicRecord], admitted: Sequence[tuple[int, int, float | None]]
) -> Iterator[str]:
    """Whether a store holds exactly the (step, index, score) that were admitted, in order."""
    stored = [(h.step, h.index, h.score) for h in heuristics if h.operator is not None and h.step != GIVEN]
    if stored != list(admitted):
        yield f"{HEURISTICS} does not hold the {len(admitted)} heuristics that were admitted"


def _place(record: CompletionRecord) -> str:
    return f"step {record.step}, completion {record.index}"


def _distance(ranked: list[float], score: float) -> float | None:
    """From a score to the nearest of rising ones, None where there are none."""
    at = bisect_left(ranked, score)
    return min([abs(other - score) for other in ranked[max(at - 1, 0) : at + 1]], default=None)
