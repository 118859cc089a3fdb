"""Evaluates programs on one split of one problem, several at a time, in the order of the input."""

import hashlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property

import numpy as np

from search_to_signal.evaluation.candidate_run import Run
from search_to_signal.evaluation.dialogues import ProgramTask, scoring
from search_to_signal.evaluation.locks import ALL, Barrier
from search_to_signal.evaluation.outcomes import Evaluation, Isolation, outcome_of
from search_to_signal.evaluation.replay import confirm_by_replay, spot_indices
from search_to_signal.evaluation.settings import EvaluationSettings, RandomnessRule
from search_to_signal.evaluation.slots import Slot, run_sharded
from search_to_signal.problems.base import (
    InfeasibleAnswerError,
    MatrixProblem,
    Problem,
    ScorePath,
    mean_score,
    score_path_of,
)
from search_to_signal.problems.data import instance_bytes
from search_to_signal.records.schema import Outcome

# Raise it when an equal program may now end in another way: part of every evaluation key.
EVALUATOR_VERSION = "5"


class EvaluationPool:
    """A context manager; within it ``evaluate`` and ``replay`` may be called any number of times.

    A text that was evaluated before is not run again: its evaluation comes back as a ``repeat``.
    One thread may evaluate while others replay other programs.
    """

    def __init__(
        self, problem: Problem, split: str, settings: EvaluationSettings, wanted: Barrier = ALL
    ) -> None:
        """Build the instances; ``wanted`` is for tests that switch a barrier off."""
        self._settings = settings
        self._task = ProgramTask(problem, problem.instances(split))
        self._context = _context(self._task, settings)
        self._known: dict[str, Run] = {}
        self._begun: dict[str, Future[Run]] = {}
        self._learning = threading.Lock()
        self._reported: dict[str, Run] = {}
        self._slots = [Slot(settings, wanted) for _ in range(settings.slots)]
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        self._wall = settings.clock == "wall"
        # By elapsed time a program has the machine to itself.
        self._alone = threading.Lock() if self._wall else nullcontext()
        self._threads = ThreadPoolExecutor(settings.slots, thread_name_prefix="evaluation")
        self._shard_threads = ThreadPoolExecutor(settings.slots, thread_name_prefix="shard")
        # A group waits for its evaluation, nothing for a replay: half of the slots are enough for those.
        self._replay_threads = ThreadPoolExecutor(max(1, settings.slots // 2), thread_name_prefix="replay")

    def __enter__(self) -> "EvaluationPool":
        """Start the fork servers; raises SandboxError when a required barrier does not hold."""
        try:
            _compile(self._task)
            list(self._threads.map(Slot.start, self._slots))
        except BaseException:
            self.__exit__()
            raise
        for slot in self._slots:
            self._free.put(slot)
        return self

    def __exit__(self, *_: object) -> None:
        """End every process that the pool started."""
        programs = (self._threads, self._replay_threads)
        for executor in programs:
            executor.shutdown(wait=False, cancel_futures=True)
        for slot in self._slots:
            slot.close()
        for executor in (*programs, self._shard_threads):
            executor.shutdown()

    def begin(self, code: str) -> None:
        """Begin to evaluate a program that ``evaluate`` will be asked for; by processor time alone."""
        key = self.key(code)
        if not (self._wall or key in self._known or key in self._begun):
            self._begun[key] = self._threads.submit(self._measure, code)

    def evaluate(self, codes: Sequence[str]) -> list[Evaluation]:
        """Evaluate programs; results come in input order. Raises SandboxError for a fault of the sandbox."""
        return self._run_new(codes, self._measure_begun)

    def replay(self, codes: Sequence[str]) -> list[Evaluation]:
        """Evaluate programs and repeat the valid ones on all instances in a differently seeded fork server.

        For everything that enters an archive. A program that decides otherwise comes back, from now on,
        with isolation NONDETERMINISTIC; its outcome and score stay (D20). Raises SandboxError.
        """
        self.evaluate(codes)
        return self._run_new(codes, self._confirm, again=True)

    def new_runs(self) -> dict[str, Run]:
        """By key, what became known, or was replaced, since the last call; ``remember`` takes it back."""
        new_runs = {key: run for key, run in self._known.items() if self._reported.get(key) is not run}
        self._reported = self._known
        return new_runs

    def remember(self, known: Mapping[str, Run]) -> None:
        """Know these runs as if they had happened here: an equal text is a ``repeat`` of them."""
        self._known = {**self._known, **known}
        self._reported = self._known

    def barriers(self) -> Mapping[str, str | bool]:
        """The isolation barriers that hold, for the manifest."""
        return self._slots[0].barriers()

    def key(self, code: str) -> str:
        """What an evaluation depends on: the program's text, instances, limits, evaluator version; hashed.

        The whole text: a program can read its own docstrings, annotations, constants and line numbers.
        """
        return hashlib.sha256(self._context + code.encode("utf-8", "surrogatepass")).hexdigest()

    def _run_new(
        self, codes: Sequence[str], work: Callable[[str], Run], again: bool = False
    ) -> list[Evaluation]:
        keys = [self.key(code) for code in codes]
        fresh = {key: code for key, code in zip(keys, codes, strict=True) if again or key not in self._known}
        runs = dict(self._known)
        threads = self._replay_threads if again else self._threads
        each = map if self._wall else threads.map
        new = dict(zip(fresh, each(work, fresh.values()), strict=True))
        runs |= new
        with self._learning:
            self._known = {**self._known, **{key: run for key, run in new.items() if self._lasts(key, run)}}
        path = self._score_path if runs else "direct"
        return [
            _evaluation(
                runs[key],
                code,
                path,
                repeat=key not in fresh or key in keys[:index],
                randomness=self._settings.randomness,
            )
            for index, (key, code) in enumerate(zip(keys, codes, strict=True))
        ]

    @cached_property
    def _score_path(self) -> ScorePath:
        # Which way a score takes depends on problem, instance and machine, and on no answer.
        problem, nothing = self._task.problem, np.empty(0)
        paths = {score_path_of(problem, instance, nothing) for instance in self._task.instances}
        return "fallback" if "fallback" in paths else max(paths)

    def _lasts(self, key: str, run: Run) -> bool:
        # A kill from outside says nothing about the program: it may be tried again. And of two replays of one
        # program at once, the one that finds nothing does not take back what the other found.
        known = self._known.get(key)
        found = known is not None and known.isolation is Isolation.NONDETERMINISTIC
        return run.isolation is not Isolation.KILLED and not found

    def _measure_begun(self, code: str) -> Run:
        begun = self._begun.pop(self.key(code), None)
        return self._measure(code) if begun is None else begun.result()

    def _measure(self, code: str) -> Run:
        with self._alone:
            run = run_sharded(self._slot, self._shard_threads, self._task, code, self._settings)
            if run.isolation is not Isolation.OK or self._settings.replay == "off":
                return run
            count = len(self._task.instances)
            spots = self._settings.spot_instances if self._settings.replay == "spot" else count
            with self._slot() as slot:
                return confirm_by_replay(slot, self._task, code, run, spot_indices(code, count, spots))

    def _confirm(self, code: str) -> Run:
        run = self._known.get(self.key(code)) or self._measure(code)
        if run.isolation is not Isolation.OK:
            return run
        indices = range(len(self._task.instances))[::-1]
        with self._alone, self._slot() as slot:
            return confirm_by_replay(slot, self._task, code, run, indices)

    @contextmanager
    def _slot(self) -> Iterator[Slot]:
        slot = self._free.get()
        try:
            yield slot
        finally:
            self._free.put(slot)


def _compile(task: ProgramTask) -> None:
    # Answers are scored while the candidate that gave them waits: in a fresh checkout, where kernels have to
    # be compiled first, that alone would use up the elapsed time of the first candidate.
    if isinstance(task.problem, MatrixProblem):
        instance = task.instances[0]
        with suppress(InfeasibleAnswerError), scoring(task.problem):
            task.problem.score(instance, np.ones(task.problem.answer_shape(instance)))


def _context(task: ProgramTask, settings: EvaluationSettings) -> bytes:
    limits = f"{settings.timeout_s} {settings.clock} {settings.memory_mb} {settings.mode} {settings.replay}"
    digest = hashlib.sha256(f"{EVALUATOR_VERSION} {task.problem.name} {limits}".encode())
    for content in instance_bytes(task.instances):
        digest.update(content)
    return digest.digest()


def _evaluation(run: Run, code: str, path: ScorePath, repeat: bool, randomness: RandomnessRule) -> Evaluation:
    outcome = outcome_of(run.isolation, code, randomness)
    valid = outcome is Outcome.VALID
    return Evaluation(
        isolation=run.isolation,
        outcome=outcome,
        score=mean_score(run.scores) if valid else None,
        per_instance=run.scores if valid else (),
        detail=run.detail,
        cpu_s=run.cpu_s,
        wall_s=run.wall_s,
        repeat=repeat,
        score_path=path,
    )
