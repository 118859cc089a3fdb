"""What every part of a results directory is recomputed with."""

from collections import Counter
from dataclasses import dataclass

from search_to_signal.progress import Progress
from search_to_signal.seeding import stream
from search_to_signal.verification.recompute.programs import ProgramRunner
from search_to_signal.verification.recompute.tokens import Tokenizers


@dataclass(frozen=True)
class Sample:
    """Which of many are executed: ``count`` of them, drawn from ``seed``, or all when there are fewer."""

    seed: int
    count: int

    def chosen(self, name: str, total: int) -> frozenset[int]:
        """Positions within what has this name."""
        drawn = stream(self.seed, "recompute", name).choice(total, min(self.count, total), replace=False)
        return frozenset(drawn.tolist())


@dataclass(frozen=True)
class Tools:
    """What every part of a results directory is recomputed with; without ``sample`` everything is executed.

    ``tally`` counts the groups and completions that were looked at.
    """

    runner: ProgramRunner
    tokenizers: Tokenizers
    sample: Sample | None
    progress: Progress
    tally: "Counter[str]"

    def chosen(self, name: str, total: int) -> frozenset[int]:
        """Which of ``total`` groups are executed."""
        return self.sample.chosen(name, total) if self.sample else frozenset(range(total))
