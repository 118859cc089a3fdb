"""Evaluates programs on one split of one problem, several at a time, in the order of the input."""

import hashlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import msgspec
import numpy as np

from search_to_signal.base.errors import SandboxError, require
from search_to_signal.problems.base import (
    Array,
    InfeasibleAnswerError,
    Instance,
    MatrixProblem,
    Problem,
    ScorePath,
    instance_bytes,
    mean_score,
    score_path_of,
)
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox import wire_format
from search_to_signal.sandbox.dialogues import (
    BY_ELAPSED_TIME,
    Channel,
    ProgramTask,
    WorkerGoneError,
    decide,
    scoring,
)
from search_to_signal.sandbox.fork_server import (
    REPLAYING,
    SCORING,
    ForkServer,
    ForkServerGoneError,
    Variation,
)
from search_to_signal.sandbox.fork_server_main import needs_wide
from search_to_signal.sandbox.locks import ALL, Barrier
from search_to_signal.sandbox.outcomes import CandidateError, Evaluation, Isolation, outcome_of
from search_to_signal.sandbox.settings import EvaluationSettings, RandomnessRule

# One candidate from spawn to reap.

# The worker's own timers come first; the parent's deadline is for machines where they cannot be had.
_GRACE_S = 1.0
# More than any completion holds; keeps a frame small whatever a caller sends.
_LONGEST_SOURCE = 1 << 20
_SIGNALS: Mapping[int, Isolation] = MappingProxyType(
    {
        signal.SIGSYS: Isolation.VIOLATION,
        signal.SIGALRM: Isolation.TIMEOUT,
        signal.SIGPROF: Isolation.TIMEOUT,
        signal.SIGXCPU: Isolation.TIMEOUT,
        signal.SIGKILL: Isolation.KILLED,
    }
)


@dataclass(frozen=True)
class Run:
    """What one worker did: typed ending, and per instance the score and a digest of its decisions.

    ``scores`` and ``decisions`` are empty unless the run is OK. ``cpu_s`` and ``wall_s`` are in seconds.
    """

    isolation: Isolation
    detail: str
    scores: tuple[float, ...]
    decisions: tuple[str, ...]
    cpu_s: float
    wall_s: float


@dataclass
class _Progress:
    ready: bool = False
    scores: list[float] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)


def run_candidate(server: ForkServer, task: ProgramTask, code: str, settings: EvaluationSettings) -> Run:
    """Run one program on the instances of a task in order, in a process of its own.

    Raises ForkServerGoneError when the fork server dies, SandboxError when a worker cannot lock itself up.
    """
    start = time.monotonic()
    progress = _Progress()
    with server.spawn(settings.wall_s, settings.timeout_s, settings.memory_mb << 20) as data:
        try:
            channel = Channel(data, settings.wall_s + _GRACE_S)
            failure = _converse(channel, task, code, settings.mode, progress)
        finally:
            exited = server.reap()
    if isinstance(failure, WorkerGoneError):
        failure = _death(exited.status, progress.ready)
    return Run(
        isolation=failure.isolation if failure else Isolation.OK,
        detail=failure.detail if failure else "",
        scores=() if failure else tuple(progress.scores),
        decisions=() if failure else tuple(progress.decisions),
        cpu_s=exited.cpu_s,
        wall_s=time.monotonic() - start,
    )


def _converse(
    channel: Channel, task: ProgramTask, code: str, mode: str, progress: _Progress
) -> CandidateError | WorkerGoneError | None:
    try:
        channel.wait_until_ready()
        progress.ready = True
        parameters = _load(channel, code, mode)
        for answer, score in decide(channel, task, parameters):
            progress.scores.append(score)
            progress.decisions.append(hashlib.blake2b(answer.tobytes(), digest_size=16).hexdigest())
    except (CandidateError, WorkerGoneError) as error:
        return error
    return None


def _load(channel: Channel, code: str, mode: str) -> int:
    """Hand over the source; returns the number of positional parameters of its function."""
    raw = code.encode("utf-8", "surrogatepass")
    if len(raw) > _LONGEST_SOURCE:
        raise CandidateError(Isolation.GATE, f"the source is longer than {_LONGEST_SOURCE} bytes")
    channel.ask(wire_format.LOAD_STRICT if mode == "strict" else wire_format.LOAD, raw)
    return channel.value()


def _death(status: int, ready: bool) -> CandidateError:
    """What the end of a process says; before it was ready, its end is our fault."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    isolation = _SIGNALS.get(number, Isolation.CRASH) if number else Isolation.EXIT
    if not ready and isolation not in (Isolation.TIMEOUT, Isolation.KILLED):
        raise SandboxError(
            f"a worker could not isolate itself (wait status {status}); run the isolation tests "
            "(pytest tests/isolation) on this machine before you trust any result from it"
        )
    name = signal.Signals(number).name if number else f"code {os.WEXITSTATUS(status)}"
    return CandidateError(isolation, name)


# Programs with known endings, run before anything else: does a worker compute right, do its locks hold?

_POSITIONS = np.array([0, 9, 2, 7, 4, 30])
_INSTANCE: Instance = MappingProxyType(
    {"distance": np.abs(_POSITIONS[:, None] - _POSITIONS[None, :]).astype(np.float64)}
)
_TOUR = (0, 2, 4, 3, 1, 5)
_SETTINGS = EvaluationSettings(timeout_s=10.0, memory_mb=64)

_HEAD = "def canary(current, destination, unvisited, matrix):\n    "
_NEAREST = _HEAD + "return min(sorted(unvisited), key=lambda node: matrix[current][node])"
_TRAPS = MappingProxyType(
    {
        Barrier.SECCOMP: (_HEAD + "import socket; socket.socket()", (Isolation.VIOLATION,)),
        # A kernel whose clock is not the processor's answers by a system call instead of the trap.
        Barrier.CLOCK | Barrier.SECCOMP: (
            _HEAD + "import time; time.time()",
            (Isolation.CRASH, Isolation.VIOLATION),
        ),
        Barrier.LIMITS: (_HEAD + "return bytes(2**30)", (Isolation.MEMORY,)),
    }
)


class _Line:
    """Six places on a line with whole distances, so that the known tour is the same on every machine."""

    dialogue = "tour"

    def score(self, instance: Instance, answer: Array) -> float:
        if tuple(answer.tolist()) != _TOUR:
            raise InfeasibleAnswerError("another tour than the known one")
        return 0.0


def check(server: ForkServer) -> None:
    """Raise SandboxError unless the known programs end as known under the barriers that hold."""
    for name, expected, run in _endings(server):
        if run.isolation not in expected:
            raise SandboxError(
                f"the canary for {name} ended in {run.isolation.value} ({run.detail}), expected "
                f"{expected[0].value}: programs are not isolated on this machine; run "
                "tests/isolation/tally.py"
            )


def _endings(server: ForkServer) -> Iterator[tuple[str, tuple[Isolation, ...], Run]]:
    task = ProgramTask(_Line(), [_INSTANCE])
    run = run_candidate(server, task, _NEAREST, _SETTINGS)
    yield "a known tour", (Isolation.OK,), run
    for barrier, (code, expected) in _TRAPS.items():
        if barrier in server.barriers:
            names = "|".join(str(part.name) for part in Barrier if part in barrier)
            yield names, expected, run_candidate(server, task, code, _SETTINGS)


# Slots of a pool: each a fork server that scores and one that replays, both replaced when they die.
#
# One program on several slots at a time is how elapsed time is measured as the host measures it (D33); by
# processor time it ends sooner.

_REQUIRED = Barrier.SECCOMP | Barrier.NO_NEW_PRIVS
_ATTEMPTS = 3


class Slot:
    """Runs one program at a time; a fork server starts when it is first needed."""

    def __init__(self, settings: EvaluationSettings, wanted: Barrier) -> None:
        self.settings = settings
        self._wanted = wanted
        self._servers: dict[Variation, ForkServer] = {}
        self._closed = False

    def start(self) -> None:
        """Start the scoring fork server; raises SandboxError when a required barrier does not hold."""
        self._server(SCORING)

    def run(self, task: ProgramTask, code: str, shards: int = 1) -> Run:
        """Run a program in the scoring fork server; one of ``shards`` has that share of the processor time.

        Raises SandboxError for a fault of the sandbox.
        """
        return self._run(SCORING, task, code, shards)

    def replay(self, task: ProgramTask, code: str) -> Run:
        """Run a program where hashes, addresses, fresh memory and generators differ; as ``run``."""
        return self._run(REPLAYING, task, code)

    def barriers(self) -> Mapping[str, str | bool]:
        """The barriers that hold, by name, with the Landlock ABI and the mode of the gate."""
        server = self._server(SCORING)
        held: dict[str, str | bool] = {
            str(barrier.name).lower(): barrier in server.barriers for barrier in Barrier
        }
        return held | {"landlock_abi": str(server.landlock_abi), "mode": self.settings.mode}

    def close(self) -> None:
        """End the fork servers and what runs in them; a program at work meets a SandboxError."""
        self._closed = True
        for server in list(self._servers.values()):
            server.close()

    def _run(self, variation: Variation, task: ProgramTask, code: str, shards: int = 1) -> Run:
        settings, variation = self.settings, replace(variation, wide=needs_wide(code))
        if settings.clock == "wall":
            return self._attempt(variation, task, code, settings)
        settings = msgspec.structs.replace(settings, timeout_s=settings.timeout_s / shards)
        run = self._attempt(variation, task, code, settings)
        # A suspended machine or a stopped process ends a program that way too.
        if run.isolation is Isolation.TIMEOUT and run.detail in BY_ELAPSED_TIME:
            return self._attempt(variation, task, code, settings)
        return run

    def _attempt(
        self, variation: Variation, task: ProgramTask, code: str, settings: EvaluationSettings
    ) -> Run:
        for _ in range(_ATTEMPTS):
            try:
                return run_candidate(self._server(variation), task, code, settings)
            except ForkServerGoneError:
                self._servers.pop(variation).close()
                if self._closed:
                    raise SandboxError("the evaluation pool was closed while a program ran") from None
        raise SandboxError(
            f"the fork server died {_ATTEMPTS} times while it ran one program; look for an out-of-memory "
            "killer in the kernel log and lower evaluation.slots or evaluation.memory_mb"
        )

    def _server(self, variation: Variation) -> ForkServer:
        if variation not in self._servers:
            if variation.wide:
                require("scipy")
            server = ForkServer(variation, self._wanted)
            try:
                if self.settings.require_seccomp and _REQUIRED & ~server.barriers:
                    raise SandboxError(
                        "seccomp does not work on this machine, so programs cannot be isolated; use another "
                        "machine, or accept this with evaluation.require_seccomp = false"
                    )
                check(server)
            except BaseException:
                server.close()
                raise
            self._servers[variation] = server
        return self._servers[variation]


def run_sharded(
    take: Callable[[], AbstractContextManager[Slot]],
    threads: ThreadPoolExecutor,
    task: ProgramTask,
    code: str,
    settings: EvaluationSettings,
) -> Run:
    """Run a program on the instances of a task, dealt out to as many shards as there are slots.

    Every shard takes a slot of its own. By elapsed time their clocks start together where all are free, so
    that one limit holds for all instances. By processor time each shard has its share of the limit, and where
    one ends otherwise than well, a run of all instances one after another says how the program ends, so that
    the slots have no say in it. Raises SandboxError for a fault of the sandbox, once every shard has ended.
    """
    count = min(settings.slots, len(task.instances))

    def run_shard(shard: ProgramTask) -> Run:
        with take() as slot:
            return slot.run(shard, code, count)

    if count == 1:
        return run_shard(task)
    shards = [replace(task, instances=task.instances[start::count]) for start in range(count)]
    running = [threads.submit(run_shard, shard) for shard in shards]
    wait(running)
    run = merge_shards([future.result() for future in running])
    if run.isolation is not Isolation.OK and settings.clock == "processor":
        with take() as slot:
            return slot.run(task, code)
    return run


def merge_shards(runs: Sequence[Run]) -> Run:
    """Merge the runs of shards into one: their results in the order of the instances, or the first failure.

    A kill from outside counts last, because it says nothing about the program. Processor seconds add up.
    """
    cpu_s, wall_s = sum(run.cpu_s for run in runs), max(run.wall_s for run in runs)
    failed = [run for run in runs if run.isolation is not Isolation.OK]
    if failed:
        outcome = min(failed, key=lambda run: run.isolation is Isolation.KILLED)
        return replace(outcome, cpu_s=cpu_s, wall_s=wall_s)
    order = sorted((place, shard) for shard, run in enumerate(runs) for place in range(len(run.scores)))
    scores = tuple(runs[shard].scores[place] for place, shard in order)
    decisions = tuple(runs[shard].decisions[place] for place, shard in order)
    return replace(runs[0], scores=scores, decisions=decisions, cpu_s=cpu_s, wall_s=wall_s)


# Does a program decide the same where only chance differs? Recorded with its outcome (D20).

# A second run that is cut off says nothing when the first had used so much of the time limit itself.
_BORDERLINE = 0.5


def spot_indices(code: str, instances: int, count: int) -> tuple[int, ...]:
    """Which instances a spot check asks: some that depend on the program alone, last one first."""
    start = int.from_bytes(hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    chosen = {(start + step) % instances for step in range(min(count, instances))}
    return tuple(sorted(chosen, reverse=True))


def confirm_by_replay(slot: Slot, task: ProgramTask, code: str, run: Run, indices: Sequence[int]) -> Run:
    """Replay an OK run on some instances; it comes back as NONDETERMINISTIC when the decisions differ.

    The instances are asked in reverse, so that state that modules carry from one to the next shows as well.
    Where the slot's settings give a replay 0 s (``replay_s``), one that is cut off says nothing.
    """
    instances = [task.instances[index] for index in indices]
    again = slot.replay(replace(task, instances=instances, scored=False), code)
    if again.isolation is Isolation.KILLED:
        return run
    if again.isolation is Isolation.TIMEOUT and run.cpu_s > _BORDERLINE * slot.settings.replay_s:
        return run
    if again.isolation is not Isolation.OK:
        return replace(run, isolation=Isolation.NONDETERMINISTIC, detail=f"replay: {again.isolation.value}")
    changed = [i for i, new in zip(indices, again.decisions, strict=True) if new != run.decisions[i]]
    if changed:
        detail = f"replay: other decisions on instance {changed[0]}"
        return replace(run, isolation=Isolation.NONDETERMINISTIC, detail=detail)
    return run


# Raise it when an equal program may now end in another way: part of every evaluation key.
EVALUATOR_VERSION = "5"


class EvaluationPool:
    """A context manager; within it ``evaluate`` and ``replay`` may be called any number of times.

    A text that was evaluated before is not run again: its evaluation comes back as a ``repeat``.
    One thread may evaluate while others replay other programs.
    """

    def __init__(self, problem: Problem, split: str, settings: EvaluationSettings) -> None:
        """Build the instances."""
        self._settings = settings
        self._task = ProgramTask(problem, problem.instances(split))
        self._context = _context(self._task, settings)
        self._known: dict[str, Run] = {}
        self._begun: dict[str, Future[Run]] = {}
        self._learning = threading.Lock()
        self._reported: dict[str, Run] = {}
        self._slots = [Slot(settings, ALL) for _ in range(settings.slots)]
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
