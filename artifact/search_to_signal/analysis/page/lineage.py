"""The best heuristic of the cohort beside the seed, and how it came about."""

from dataclasses import dataclass

from search_to_signal.analysis.evidence import Evidence
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.records.reader import HEURISTICS, read_records
from search_to_signal.records.schema import HeuristicRecord


@dataclass(frozen=True)
class Lineage:
    """From the seed to the best heuristic of a run; ``ancestors`` begins with the seed.

    Each next one has the one before among its parents: of several parents the better one, the first of
    equal ones.
    """

    run: str
    ancestors: tuple[HeuristicRecord, ...]

    @property
    def seed(self) -> HeuristicRecord:
        """What the search began with."""
        return self.ancestors[0]

    @property
    def best(self) -> HeuristicRecord:
        """What it found."""
        return self.ancestors[-1]


def best_lineage(evidence: Evidence) -> Lineage | None:
    """The lineage of the best heuristic of all runs of the cohort, the first of equal ones.

    None where the runs keep no heuristics.
    """
    found = [lineage for lineage in map(_lineage, evidence.results.cohort) if lineage is not None]
    return max(found, key=lambda lineage: lineage.best.score) if found else None


def _lineage(run: RecordedRun) -> Lineage | None:
    file = run.directory / HEURISTICS
    stored = list(read_records(file, HeuristicRecord)) if file.is_file() else []
    if not stored:
        return None
    parents = {(record.step, record.index): record.parents for group in run.groups for record in group}
    known: dict[str, HeuristicRecord] = {}
    for record in stored:
        known.setdefault(record.id, record)
    chain = [max(stored, key=lambda record: record.score)]
    while chain[-1].operator is not None:
        before = [known[name] for name in parents.get((chain[-1].step, chain[-1].index), ()) if name in known]
        if not before:
            break
        chain.append(max(before, key=lambda record: record.score))
    return Lineage(run.path, tuple(reversed(chain)))
