"""What the logs of a search have in common: a group is one candidate."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from search_to_signal.audit.groups import SEARCH, Assumption
from search_to_signal.audit.importers.rows import Evidence, Group, digest


@dataclass(frozen=True)
class Told:
    """What is said of a log once a count of ``names[0]`` is above 0, with the counts of all names."""

    key: str
    says: str
    names: tuple[str, ...]


COPIES = Told(
    "copies",
    "copies of a program on another island are no candidates, and are left out",
    ("copies", "copies in the archive"),
)
REPEATED = Told(
    "repeated_programs",
    "a program whose id stands in the log again counts once",
    ("repetitions",),
)


@dataclass
class Tally:
    """What is counted beside the rows of a log as they are read."""

    tells: Sequence[Told]
    counts: Counter[str] = field(default_factory=Counter)
    _known: set[tuple[str, int]] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)

    def stood_before(self, kind: str, value: object) -> bool:
        """Whether an id or a number of this kind was met before; False for one that was not logged."""
        if value is None:
            return False
        entry, size = (kind, digest(str(value))), len(self._known)
        self._known.add(entry)
        return len(self._known) == size

    def assumptions(self) -> Iterator[Assumption]:
        """What was counted since the batch before."""
        for told in self.tells:
            if self.counts[told.names[0]]:
                self._told.add(told.key)
            if told.key in self._told:
                yield Assumption(told.key, told.says, {name: self.counts.pop(name, 0) for name in told.names})


def candidates(says: str, tally: Tally | None = None) -> Evidence:
    """One assumption with the numbers that a search's log is read for, and what was counted beside them."""

    def evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
        rows = [row for group in groups for row in group]
        counts = {
            "candidates": len(rows),
            "compared": sum(not math.isnan(row.improvement) for row in rows),
            "improved": sum(row.improvement > 0.0 for row in rows),
            "admitted": sum(row.admitted == 1 for row in rows),
        }
        how = f"{says}; a higher score is better"
        return (Assumption(SEARCH, how, counts), *(tally.assumptions() if tally else ()))

    return evidence


def ended(told: str, score: float) -> str:
    """How an evaluation ended: as the log tells it, or as a failure where its score is no finite number."""
    return told if told not in ("ok", "correct") or math.isfinite(score) else f"failed: score {score}"
