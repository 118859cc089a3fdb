"""Scalars of running runs for TensorBoard, read from their step records and written to another directory."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

import msgspec

from search_to_signal.base.errors import ConfigError, S2SError, require
from search_to_signal.base.processes import called_every
from search_to_signal.records.files import LARGEST, read_regular
from search_to_signal.records.manifest import runs_below
from search_to_signal.records.reader import STEPS
from search_to_signal.records.schema import StepRecord

SCALARS: Mapping[str, Callable[[StepRecord], float | None]] = {
    "search/best_score": lambda step: step.frontier_after,
    "search/archive_size": lambda step: step.archive_size,
    "search/admitted": lambda step: step.admitted,
    "completions/valid": lambda step: step.valid,
    "learner/grpo_loss": lambda step: step.loss,
    "learner/kl": lambda step: step.kl,
    "learner/grad_norm": lambda step: step.grad_norm,
    "learner/training_tokens": lambda step: step.training_tokens,
}
"""The scalars of a step by their tags; None is not written. Scores: higher is better."""
_SECONDS = 5.0


class Writer(Protocol):
    """The used part of torch's SummaryWriter."""

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Write one value."""

    def flush(self) -> None:
        """Write buffered values to disk."""


@dataclass
class Scalars:
    """The scalars of all runs below a results directory; ``opened`` opens a run's writer by its name."""

    results: Path
    opened: Callable[[str], Writer]
    writers: dict[str, Writer] = field(default_factory=dict)
    written: Counter[str] = field(default_factory=Counter)

    def write_new(self) -> None:
        """Write every step that was recorded since the last call.

        A run that resumed from a checkpoint records equal steps again, which are not written twice.
        """
        for run in runs_below(self.results):
            name = run.relative_to(self.results).as_posix()
            for step in _whole_steps(run / STEPS, self.written[name]):
                if name not in self.writers:
                    self.writers[name] = self.opened(name)
                for tag, value_of in SCALARS.items():
                    if (value := value_of(step)) is not None:
                        self.writers[name].add_scalar(tag, value, step.step)
                self.written[name] += 1
        for writer in self.writers.values():
            writer.flush()


def _whole_steps(file: Path, start: int) -> Iterator[StepRecord]:
    if file.is_file():
        *lines, _ = read_regular(file, LARGEST).split(b"\n")
        yield from (msgspec.json.decode(line, type=StepRecord) for line in lines[start:])


def require_tensorboard(results: Path, out: Path) -> None:
    """Raise MissingExtraError without the package, ConfigError where ``out`` lies in ``results``."""
    if out.resolve().is_relative_to(results.resolve()):
        raise ConfigError(
            f"--tensorboard {out} is inside {results}, which is sealed: give a directory outside of it"
        )
    require("tensorboard")


@contextmanager
def written_while_running(results: Path, out: Path | None) -> Iterator[None]:
    """Write scalars of the runs below ``results`` to ``out`` every few seconds within the context.

    Without ``out`` nothing is written. Raises as ``require_tensorboard`` does. Runs continue where scalars
    cannot be written.
    """
    if out is None:
        yield
        return
    require_tensorboard(results, out)
    # Imported by name: torch has no types for it, and loads slowly.
    writer = import_module("torch.utils.tensorboard").SummaryWriter
    # A repeated command writes all steps again, in place of the earlier ones.
    scalars = Scalars(results, lambda name: writer(str(out / name), purge_step=0))
    try:
        with called_every(_SECONDS, partial(_write_if_possible, scalars)):
            yield
    finally:
        _write_if_possible(scalars)


def _write_if_possible(scalars: Scalars) -> None:
    with suppress(S2SError, OSError, msgspec.MsgspecError):
        scalars.write_new()
