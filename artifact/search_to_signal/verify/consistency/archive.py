"""A run's archive, replayed from its records by the known rules of its host, and its program database."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from search_to_signal.credit.base import EQUAL_SCORES
from search_to_signal.records.manifest import DATABASE, Manifest, read_database
from search_to_signal.records.reader import HEURISTICS, STEPS, Group, read_records
from search_to_signal.records.schema import (
    GIVEN,
    ArchiveEvent,
    CompletionRecord,
    HeuristicRecord,
    HostFacts,
    StepRecord,
    given,
)

# CALM's archive, replayed from recorded scores (admission and collapse: HOST.md, points 6, 7, 13, 14).


class _Members:
    """An archive's members in order, by id, and by stripped code; ``ranked`` are their scores, ascending."""

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
        """Return the members with these ids, in no order."""
        return [member for name in set(ids) for member in self.by_id.get(name, ())]

    def with_code_of(self, members: Iterable[HeuristicRecord]) -> list[HeuristicRecord]:
        """Return the members that share their code with one of ``members``, in no order."""
        codes = {member.code.strip() for member in members}
        return [member for code in codes for member in self.by_code[code]]


@dataclass
class CalmArchive:
    """The archive of a run, replayed group by group from its seed heuristics alone.

    ``waiting`` holds the stored heuristics whose completion is still to come, in order. ``own_rule`` marks a
    host whose admission rule is not known for certain (HOST.md, point 7): its admissions are taken from the
    records, and its stagnation is not checked.
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
        """Return the archive before the first group: seeds, without operator, and a given population."""
        seeds = tuple(heuristic for heuristic in heuristics if heuristic.operator is None)
        waiting = [h for h in heuristics if h.operator is not None and h.step != GIVEN]
        population = None if own_rule else search.get("population_size")
        return cls(population, seeds, _Members([*seeds, *given(heuristics)]), waiting, own_rule=own_rule)

    def problems(self, group: Group, step: StepRecord) -> Iterator[str]:
        """Yield the contradictions of the next group, and update the archive by it."""
        if step.collapsed:
            self._collapse()
        where, ranked = f"step {step.step}", self.members.ranked
        yield from self._context(group, ranked[-1] if ranked else None)
        improved = any(record.score is not None and record.score > ranked[-1] for record in group)
        size_before, admitted = len(ranked), list[HeuristicRecord]()
        for record in group:
            if record.score is not None:
                yield from self._admission(record, record.score, ranked, admitted)
        self.members.add(admitted)
        if step.archive_size != len(ranked):
            yield f"{where}: archive_size is {step.archive_size}, its completions say {len(ranked)}"
        if self.population is not None:
            self.stagnation = 0 if improved else self.stagnation + (size_before >= self.population)
            if step.stagnation != self.stagnation:
                yield f"{where}: stagnation is {step.stagnation}, the records say {self.stagnation}"

    def _collapse(self) -> None:
        self.stagnation = 0
        best = max(self.members.in_order, key=lambda member: member.score)
        seeds = (seed for seed in self.seeds if abs(seed.score - best.score) >= EQUAL_SCORES)
        self.members = _Members([best, *seeds])

    def _context(self, group: Group, best: float | None) -> Iterator[str]:
        parents = self.members.named(group[0].parents)
        bases = self.members.with_code_of(parents)
        size, known, programs = len(self.members.ranked), self.members.by_id, {member.id for member in bases}
        expected = tuple(sorted((member.score for member in bases), reverse=True))
        # Programs that differ in comments alone share an id, which leaves open which one the prompt showed.
        if len(parents) > len(set(group[0].parents)) and set(group[0].base_scores) <= set(expected):
            expected = group[0].base_scores
        has_unknown_parent = any(name not in known for name in group[0].parents)
        for record in group:
            if (record.archive_size, record.frontier) != (size, best):
                yield (
                    f"{_where(record)}: archive of {record.archive_size} with frontier {record.frontier}, "
                    f"the records before it say {size} with {best}"
                )
            if self.own_rule:
                continue
            if has_unknown_parent or record.parents != group[0].parents:
                yield f"{_where(record)}: its parents are not in the archive"
            if record.base_scores != expected:
                scores = record.base_scores
                yield f"{_where(record)}: base_scores are {scores}, those of its parents are {expected}"
            if record.matches_base_code != (record.program_sha256 in programs):
                yield f"{_where(record)}: matches_base_code is not what its program says"

    def _admission(
        self, record: CompletionRecord, score: float, ranked: list[float], admitted: list[HeuristicRecord]
    ) -> Iterator[str]:
        where, gap = _where(record), _distance(ranked, score)
        if record.archive_gap != gap:
            yield f"{where}: score {score} is {gap} from the archive, recorded is {record.archive_gap}"
        in_archive = gap is not None and gap < EQUAL_SCORES
        duplicate = in_archive or any([abs(other.score - score) < EQUAL_SCORES for other in admitted])
        if self.own_rule:
            duplicate = record.archive_event is not ArchiveEvent.ADMITTED
        event = ArchiveEvent.DUPLICATE_SCORE if duplicate else ArchiveEvent.ADMITTED
        if record.archive_event is not event:
            yield f"{where}: archive event is {record.archive_event.value}, its score says {event.value}"
        if not duplicate:
            admitted.append(self._stored(record, score))
            self.admitted.append((record.step, record.index, score))

    def _stored(self, record: CompletionRecord, score: float) -> HeuristicRecord:
        """The stored heuristic of an admission; a placeholder where it is missing (see store_problems)."""
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
        """Yield a line unless the store holds exactly the admitted heuristics, in order; call it last."""
        return admission_problems(heuristics, self.admitted)


def admission_problems(
    heuristics: Sequence[HeuristicRecord], admitted: Sequence[tuple[int, int, float | None]]
) -> Iterator[str]:
    """Yield a line unless a store holds exactly the admitted (step, index, score), in order."""
    stored = [(h.step, h.index, h.score) for h in heuristics if h.operator is not None and h.step != GIVEN]
    if stored != list(admitted):
        yield f"{HEURISTICS} does not hold the {len(admitted)} heuristics that were admitted"


def _where(record: CompletionRecord) -> str:
    return f"step {record.step}, completion {record.index}"


def _distance(ranked: list[float], score: float) -> float | None:
    """The distance of a score to the nearest of the ascending ``ranked``, None where there are none."""
    at = bisect_left(ranked, score)
    return min([abs(other - score) for other in ranked[max(at - 1, 0) : at + 1]], default=None)


class ArchiveReplay(Protocol):
    """Replays a recorded search group by group and yields contradictions of its records."""

    @property
    def seeds(self) -> tuple[HeuristicRecord, ...]:
        """The stored heuristics that come from no completion."""

    def problems(self, group: Group, step: StepRecord) -> Iterator[str]:
        """Yield the contradictions of the next group, and update the archive by it."""

    def store_problems(self, heuristics: list[HeuristicRecord]) -> Iterator[str]:
        """Yield a line unless the store holds exactly the admitted heuristics, in order; call it last."""


@dataclass
class AdmittedHeuristics:
    """The archive of a host whose admission rule is unknown here: admissions are taken from the records.

    ``s2s verify --recompute`` checks admissions with the host itself.
    """

    seeds: tuple[HeuristicRecord, ...]
    admitted: list[tuple[int, int, float | None]] = field(default_factory=list)

    def problems(self, group: Group, step: StepRecord) -> Iterator[str]:
        """Yield a line unless the whole group records one frontier and one archive size."""
        if len({(record.frontier, record.archive_size) for record in group}) > 1:
            yield f"step {step.step}: its completions have different archives"
        self.admitted += [
            (r.step, r.index, r.score) for r in group if r.archive_event is ArchiveEvent.ADMITTED
        ]

    def store_problems(self, heuristics: list[HeuristicRecord]) -> Iterator[str]:
        """Yield a line unless the store holds exactly the admitted heuristics, in order."""
        return admission_problems(heuristics, self.admitted)


def archive_replay(
    heuristics: list[HeuristicRecord], search: dict[str, Any], host: HostFacts
) -> ArchiveReplay:
    """Return the archive before the first group; seeds are the heuristics without an operator."""
    if not host.calm:
        return AdmittedHeuristics(tuple(h for h in heuristics if h.operator is None))
    return CalmArchive.of(heuristics, search, own_rule=host.own_loop)


def database_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    """Yield contradictions of a program database with its run's heuristics and last step.

    The assignment of programs to islands is left to the host, by recomputation.
    """
    kind = manifest.of_host.database
    if kind in (None, "none") and not (directory / DATABASE).exists():
        return
    if kind == "none":
        yield f"{DATABASE}: the run's host has no database"
        return
    database = read_database(directory)
    scores = {h.id: h.score for h in read_records(directory / HEURISTICS, HeuristicRecord)}
    ids = {identity for island in database.islands for identity in island}
    ids |= {identity for _, identity in database.waiting}
    if unknown := sorted(ids - set(scores)):
        yield f"{DATABASE}: program {unknown[0]} is no heuristic of this run"
        return
    (*_, last) = read_records(directory / STEPS, StepRecord)
    size_and_best: tuple[object, ...] = (len(ids), max((scores[identity] for identity in ids), default=None))
    is_archive = size_and_best == (last.archive_size, last.frontier_after)
    if database.groups != last.step + 1 or (kind == "archive" and not is_archive):
        yield f"{DATABASE}: it is not the database after the last step"
