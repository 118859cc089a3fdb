"""Evaluates programs on one split of one problem, several at a time, in the order of the input."""

import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numpy as np

from search_to_signal.errors import SandboxError
from search_to_signal.evaluation.candidates import Run, Task, run_candidate
from search_to_signal.evaluation.locks import ALL, Layer
from search_to_signal.evaluation.outcomes import Evaluation, outcome_of
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.evaluation.zygotes import SCORING, Zygote, ZygoteGoneError
from search_to_signal.problems.base import Problem
from search_to_signal.records.schema import Outcome

_ATTEMPTS = 3


class EvaluationPool:
    """A context manager; within it ``evaluate`` may be called any number of times."""

    def __init__(
        self, problem: Problem, split: str, settings: EvaluationSettings, wanted: Layer = ALL
    ) -> None:
        """Make the instances ready; ``wanted`` is for tests that switch a layer off."""
        self._task = Task(problem, problem.instances(split))
        self._settings = settings
        self._wanted = wanted
        self._lanes: queue.SimpleQueue[_Lane] = queue.SimpleQueue()
        self._all: list[_Lane] = []
        self._threads = ThreadPoolExecutor(settings.slots, thread_name_prefix="evaluation")

    def __enter__(self) -> "EvaluationPool":
        """Start the zygotes; raises SandboxError when a required layer is missing."""
        for _ in range(self._settings.slots):
            lane = _Lane(self._task, self._settings, self._wanted)
            self._all.append(lane)
            self._lanes.put(lane)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all zygotes and workers."""
        self._threads.shutdown(cancel_futures=True)
        for lane in self._all:
            lane.close()

    def evaluate(self, codes: Sequence[str]) -> list[Evaluation]:
        """Evaluate programs; results come in input order. Raises SandboxError for a fault of ours."""
        return list(self._threads.map(self._evaluate, codes))

    def layers(self) -> Mapping[str, str | bool]:
        """The isolation layers that hold, for the manifest."""
        return self._all[0].layers()

    def _evaluate(self, code: str) -> Evaluation:
        lane = self._lanes.get()
        try:
            return _evaluation(lane.run(code), code)
        finally:
            self._lanes.put(lane)


class _Lane:
    """One slot: a zygote that is replaced when it dies."""

    def __init__(self, task: Task, settings: EvaluationSettings, wanted: Layer) -> None:
        self._task, self._settings, self._wanted = task, settings, wanted
        self._zygote = self._start()

    def _start(self) -> Zygote:
        zygote = Zygote(SCORING, self._wanted)
        if self._settings.require_seccomp and Layer.SECCOMP not in zygote.layers:
            zygote.close()
            raise SandboxError(
                "this machine does not let the evaluation use seccomp, so programs would not be isolated; "
                "run elsewhere, or accept that with evaluation.require_seccomp = false"
            )
        return zygote

    def run(self, code: str) -> Run:
        for _ in range(_ATTEMPTS):
            try:
                return run_candidate(self._zygote, self._task, code, self._settings)
            except ZygoteGoneError:
                self._zygote.close()
                self._zygote = self._start()
        raise SandboxError(
            f"the zygote died {_ATTEMPTS} times under one program; look for an out-of-memory killer in the "
            "kernel log and lower evaluation.slots or evaluation.memory_mb"
        )

    def layers(self) -> Mapping[str, str | bool]:
        on = self._zygote.layers
        held: dict[str, str | bool] = {str(layer.name).lower(): layer in on for layer in Layer}
        return held | {"landlock_abi": str(self._zygote.landlock_abi), "mode": self._settings.mode}

    def close(self) -> None:
        self._zygote.close()


def _evaluation(run: Run, code: str) -> Evaluation:
    outcome = outcome_of(run.isolation, code)
    valid = outcome is Outcome.VALID
    return Evaluation(
        isolation=run.isolation,
        outcome=outcome,
        score=float(np.mean(run.scores)) if valid else None,
        per_instance=run.scores if valid else (),
        detail=run.detail,
        cpu_s=run.cpu_s,
        wall_s=run.wall_s,
        repeat=False,
    )
