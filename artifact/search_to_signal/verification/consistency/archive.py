"""The archive of a run, replayed from its records by what is known of its host's rules."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from search_to_signal.records.abilities import HostFacts
from search_to_signal.records.reader import Group
from search_to_signal.records.schema import ArchiveEvent, HeuristicRecord, StepRecord
from search_to_signal.verification.consistency.calm_archive import CalmArchive, admission_problems


class ArchiveReplay(Protocol):
    """Follows a recorded search group by group and says what its records contradict."""

    @property
    def seeds(self) -> tuple[HeuristicRecord, ...]:
        """The stored heuristics that no completion brought."""

    def problems(self, group: Group, step: StepRecord) -> Iterator[str]:
        """Move on by one group."""

    def store_problems(self, heuristics: list[HeuristicRecord]) -> Iterator[str]:
        """Whether the heuristic store holds exactly what was admitted, in order; call it at the end."""


@dataclass
class AdmittedHeuristics:
    """The archive of a host whose rules are not known here: what it admitted is taken from the records.

    Whether it had to admit that is asked of the host itself, by ``s2s verify --recompute``.
    """

    seeds: tuple[HeuristicRecord, ...]
    admitted: list[tuple[int, int, float | None]] = field(default_factory=list)

    def problems(self, group: Group, step: StepRecord) -> Iterator[str]:
        """Frontier and size of the archive are those of one moment for the whole group."""
        if len({(record.frontier, record.archive_size) for record in group}) > 1:
            yield f"step {step.step}: its completions have different archives"
        self.admitted += [
            (r.step, r.index, r.score) for r in group if r.archive_event is ArchiveEvent.ADMITTED
        ]

    def store_problems(self, heuristics: list[HeuristicRecord]) -> Iterator[str]:
        """Whether the heuristic store holds exactly what was admitted, in order."""
        return admission_problems(heuristics, self.admitted)


def archive_replay(
    heuristics: list[HeuristicRecord], search: dict[str, Any], host: HostFacts
) -> ArchiveReplay:
    """The archive before the first group; only seeds have no operator."""
    if not host.calm:
        return AdmittedHeuristics(tuple(h for h in heuristics if h.operator is None))
    return CalmArchive.of(heuristics, search, own_rule=host.own_loop)
