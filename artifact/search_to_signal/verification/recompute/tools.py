"""What all parts of a recomputation share: sample of groups, program runner, tokenizers, progress, counts."""

from collections import Counter
from dataclasses import dataclass

from search_to_signal.progress import Progress
from search_to_signal.seeding import stream
from search_to_signal.verification.recompute.programs import ProgramRunner
from search_to_signal.verification.recompute.tokens import Tokenizers


@dataclass(frozen=True)
class Sample:
    """A random sample of ``count`` items, drawn from ``seed``; all items where there are fewer."""

    seed: int
    count: int

    def chosen(self, name: str, total: int) -> frozenset[int]:
        """Return the sampled positions of ``total`` items; every ``name`` has its own sample."""
        positions = stream(self.seed, "recompute", name).choice(total, min(self.count, total), replace=False)
        return frozenset(positions.tolist())


@dataclass(frozen=True)
class Tools:
    """The means that all parts of a results directory share; without ``sample`` every group is executed.

    ``tally`` counts groups, completions and executed groups.
    """

    runner: ProgramRunner
    tokenizers: Tokenizers
    sample: Sample | None
    progress: Progress
    tally: "Counter[str]"

    def chosen(self, name: str, total: int) -> frozenset[int]:
        """Return the positions of the groups of ``total`` whose programs are executed."""
        return self.sample.chosen(name, total) if self.sample else frozenset(range(total))
