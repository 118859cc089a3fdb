"""A run's archive, replayed from its records by the known rules of its host, and its program database."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from search_to_signal.records.abilities import HostFacts
from search_to_signal.records.database import DATABASE, read_database
from search_to_signal.records.manifest import Manifest
from search_to_signal.records.reader import HEURISTICS, STEPS, Group, read_records
from search_to_signal.records.schema import ArchiveEvent, HeuristicRecord, StepRecord
from search_to_signal.verification.consistency.calm_archive import CalmArchive, admission_problems


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
