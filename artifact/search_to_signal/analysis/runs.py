"""A recorded run, read back: its records as they are and as arrays, and the way back to their lines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from search_to_signal.analysis.metrics.search import RunMetrics, group_trajectory, run_metrics
from search_to_signal.analysis.tables.cells import Origin
from search_to_signal.errors import RunDirectoryError
from search_to_signal.numerics import Bools, Floats
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import score_unit
from search_to_signal.records.anchor import Clock, loop_seconds, prefix
from search_to_signal.records.groups import GroupBatch, batch_of
from search_to_signal.records.manifest import Manifest
from search_to_signal.records.reader import COMPLETIONS, STEPS, read_groups, read_records
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, Operator, StepRecord


@dataclass(frozen=True)
class RecordedRun:
    """One run with its T groups of G completions in order; ``path`` is relative to the results directory."""

    directory: Path
    path: str
    manifest: Manifest
    groups: tuple[tuple[CompletionRecord, ...], ...]
    steps: tuple[StepRecord, ...]

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return self.manifest.config

    @property
    def condition(self) -> str:
        """``frozen`` or the name of the reward mapping."""
        return str(self.config["condition"])

    @property
    def seed(self) -> int:
        """The run seed, the statistical unit."""
        return int(self.config["seed"])

    @property
    def layer(self) -> str:
        """The evidence layer that the run was made for."""
        return str(self.config.get("layer", "cohort"))

    @property
    def trained(self) -> bool:
        """Whether a learner took part; a restart has its parent's condition and none."""
        return self.condition != "frozen" and self.config.get("parent") is None

    @property
    def unit(self) -> str:
        """What scores measure, such as minus tour length; higher is better."""
        problem = PROBLEMS.get(str(self.config["problem"]))
        return self.manifest.score_unit or (score_unit(problem) if problem else "score")

    @property
    def name(self) -> str:
        """Condition and seed, as rows of tables call the run."""
        return f"{self.condition}-s{self.seed}"

    @cached_property
    def batch(self) -> GroupBatch:
        """All groups as arrays."""
        return batch_of(self.groups)

    @cached_property
    def metrics(self) -> RunMetrics:
        """The run's metrics."""
        return run_metrics(self.groups)

    @cached_property
    def best(self) -> Floats:
        """(T,) best-so-far after each group, the seed heuristic included (D19)."""
        return group_trajectory(self.groups)

    @cached_property
    def advantages(self) -> Floats | None:
        """(T, G) advantages as the learner saw them; None for a run without a learner.

        Raises RunDirectoryError where a trained run lacks one.
        """
        if not self.trained:
            return None
        rows = [[record.advantage for record in group] for group in self.groups]
        advantages = np.array(rows, dtype=np.float64)
        if np.isnan(advantages).any():
            raise RunDirectoryError(f"{self.directory} was trained and lacks advantages: restore its records")
        return advantages

    @cached_property
    def admitted(self) -> Bools:
        """(T, G): the search took the completion into its archive."""
        return np.array([[r.archive_event is ArchiveEvent.ADMITTED for r in g] for g in self.groups])

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """The operator of each of the T groups."""
        return tuple(group[0].operator for group in self.groups)

    def seconds(self, clock: Clock) -> Floats:
        """(T,) seconds of each group's turn of the loop by a clock, set-up excluded; from the step timings.

        Raises ContractError where the timings lack those of the clock.
        """
        return np.array(list(prefix(loop_seconds(self.directory, clock), len(self.groups))))

    def file(self, name: str) -> str:
        """Path of one of the run's files, relative to the results directory."""
        return (PurePosixPath(self.path) / name).as_posix()

    def first(self, groups: int) -> "RecordedRun":
        """The exact stored prefix of that many groups; raises RecordError when fewer are stored."""
        head = tuple(prefix(self.groups, groups))
        return replace(self, groups=head, steps=self.steps[:groups])

    @property
    def everything(self) -> Origin:
        """Every completion of the run, or of its prefix."""
        if len(self.groups) < self.config["groups"]:
            return self.completions_of(0, len(self.groups))
        return Origin(self.file(COMPLETIONS))

    @property
    def every_step(self) -> Origin:
        """Every step record of the run, or of its prefix."""
        if len(self.steps) < self.config["groups"]:
            return self.steps_at(range(len(self.steps)))
        return Origin(self.file(STEPS))

    def completions(self, chosen: Bools) -> Origin:
        """The lines of the chosen completions; chosen: (T, G)."""
        return Origin(self.file(COMPLETIONS), tuple((np.flatnonzero(chosen) + 1).tolist()))

    def completions_of(self, start: int, stop: int) -> Origin:
        """The lines of groups start to stop - 1, counted from 0."""
        size = self.batch.outcome.shape[1]
        return Origin(self.file(COMPLETIONS), range(start * size + 1, stop * size + 1))

    def steps_at(self, groups: Sequence[int]) -> Origin:
        """The step records of these groups, counted from 0."""
        return Origin(self.file(STEPS), tuple(int(t) + 1 for t in groups))


def read_run(directory: Path, manifest: Manifest, root: Path) -> RecordedRun:
    """Read the records of a run below a results directory; raises RecordError for an unreadable line."""
    path = directory.relative_to(root).as_posix()
    groups = tuple(read_groups(directory))
    steps = tuple(read_records(directory / STEPS, StepRecord))
    return RecordedRun(directory, path, manifest, groups, steps)
