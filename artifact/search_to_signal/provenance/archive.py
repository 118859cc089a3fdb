"""Does the recorded archive follow from the recorded scores? (HOST.md, points 6, 7 and 14)"""

from collections.abc import Iterator
from dataclasses import dataclass

from search_to_signal.records.reader import HEURISTICS
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, HeuristicRecord, StepRecord
from search_to_signal.rewards.base import EQUAL_SCORES


@dataclass
class ArchiveReplay:
    """The archived scores of a run, moved on group by group from its seed heuristics alone.

    ``own_rule`` is for a host whose rule of admission is not known for certain (HOST.md, point 7): what
    it admitted is then taken from the records.
    """

    seeds: tuple[float, ...]
    scores: list[float]
    admitted: list[tuple[int, int, float]]
    own_rule: bool = False

    @classmethod
    def of(cls, heuristics: list[HeuristicRecord], own_rule: bool = False) -> "ArchiveReplay":
        """The archive before the first group; only seeds have no operator."""
        seeds = tuple(heuristic.score for heuristic in heuristics if heuristic.operator is None)
        return cls(seeds, list(seeds), [], own_rule)

    def problems(self, group: tuple[CompletionRecord, ...], step: StepRecord) -> Iterator[str]:
        """Move on by one group; yields what its records say otherwise."""
        if step.collapsed:
            self._collapse()
        best, where = max(self.scores, default=None), f"step {step.step}"
        if (group[0].archive_size, group[0].frontier) != (len(self.scores), best):
            yield (
                f"{where}: archive of {group[0].archive_size} with frontier {group[0].frontier}, "
                f"the records before it say {len(self.scores)} with {best}"
            )
        fresh: list[float] = []
        for record in group:
            if record.score is not None:
                yield from self._judged(record, record.score, fresh)
        self.scores += fresh
        if step.archive_size != len(self.scores):
            yield f"{where}: archive_size is {step.archive_size}, its completions say {len(self.scores)}"

    def _collapse(self) -> None:
        best = max(self.scores)
        self.scores = [best, *(seed for seed in self.seeds if abs(seed - best) >= EQUAL_SCORES)]

    def _judged(self, record: CompletionRecord, score: float, fresh: list[float]) -> Iterator[str]:
        where = f"step {record.step}, completion {record.index}"
        gap = min((abs(other - score) for other in self.scores), default=None)
        if record.archive_gap != gap:
            yield f"{where}: score {score} is {gap} from the archive, recorded is {record.archive_gap}"
        taken = any(abs(other - score) < EQUAL_SCORES for other in (*self.scores, *fresh))
        if self.own_rule:
            taken = record.archive_event is not ArchiveEvent.ADMITTED
        event = ArchiveEvent.DUPLICATE_SCORE if taken else ArchiveEvent.ADMITTED
        if record.archive_event is not event:
            yield f"{where}: archive event is {record.archive_event.value}, its score says {event.value}"
        if not taken:
            fresh.append(score)
            self.admitted.append((record.step, record.index, score))

    def store_problems(self, heuristics: list[HeuristicRecord]) -> Iterator[str]:
        """Whether the heuristic store holds exactly what was admitted, in order; call it at the end."""
        stored = [(h.step, h.index, h.score) for h in heuristics if h.operator is not None]
        if stored != self.admitted:
            yield f"{HEURISTICS} does not hold the {len(self.admitted)} heuristics that were admitted"
