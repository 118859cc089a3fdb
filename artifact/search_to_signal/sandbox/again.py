"""Programs executed again, in isolation and within bounded limits; equal programs are executed once."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from search_to_signal.base.errors import UNREADABLE, ConfigError, RunDirectoryError
from search_to_signal.base.progress import one_line
from search_to_signal.problems.base import Problem
from search_to_signal.records.files import storage_errors, write_all
from search_to_signal.sandbox.outcomes import Evaluation, Isolation
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings

# Recorded limits above these are refused: a forged directory could occupy the machine.
_LARGEST_LIMITS = {"timeout_s": 3600.0, "wall_factor": 10.0, "memory_mb": 8192, "spot_instances": 10_000}
# Programs that are recorded as ended by themselves get this multiple of the recorded time.
TIME_FACTOR = 4.0


class LazyPool:
    """An evaluation pool that starts its workers when the first program has to be executed."""

    def __init__(self, problem: Problem, split: str, limits: EvaluationSettings) -> None:
        self.settings = (problem, split, limits)
        self._pool, self._started = EvaluationPool(problem, split, limits), False

    def key(self, code: str) -> str:
        """Return EvaluationPool.key with the pool's rule of randomness, which an evaluation depends on."""
        return f"{self._pool.key(code)} {self.settings[2].randomness}"

    def evaluate(self, codes: Sequence[str]) -> list[Evaluation]:
        """Evaluate programs as EvaluationPool.evaluate does."""
        return self._running().evaluate(codes)

    def replay(self, codes: Sequence[str]) -> list[Evaluation]:
        """Evaluate programs twice as EvaluationPool.replay does."""
        return self._running().replay(codes)

    def close(self) -> None:
        """End every process of the pool."""
        self._pool.__exit__(None, None, None)

    def _running(self) -> EvaluationPool:
        if not self._started:
            self._pool.__enter__()
            self._started = True
        return self._pool


def limits_here(recorded: EvaluationSettings, slots: int) -> EvaluationSettings:
    """Return recorded limits, which decide outcomes, for this machine; seccomp is always required.

    Raises ConfigError for limits above the largest that are accepted.
    """
    for name, largest in _LARGEST_LIMITS.items():
        if not getattr(recorded, name) <= largest:
            raise ConfigError(
                f"evaluation.{name} is recorded as {getattr(recorded, name)}, and programs are run here with "
                f"at most {largest}: nothing was executed"
            )
    return msgspec.structs.replace(recorded, slots=slots, require_seccomp=True)


class _StateLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    confirmed: bool
    evaluation: Evaluation


class Evaluations:
    """Evaluations by program, each executed once; close it after use.

    With a ``state`` file every result is appended to it, and its results are not executed again: the file has
    to be trusted. Raises RunDirectoryError for another kind of file.
    """

    def __init__(self, state: Path | None, source: str) -> None:
        self._state, self._descriptor = state, -1
        self._head = msgspec.json.encode({"recompute": source}) + b"\n"
        self._known: dict[tuple[str, bool], Evaluation] = {}
        self.executed = 0
        if state is not None:
            try:
                self._open(state)
            except OSError as error:
                raise RunDirectoryError(f"cannot use the state file {state}: {error.strerror}") from error

    def close(self) -> None:
        """Close the state file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def results(self, pool: LazyPool, codes: Sequence[str], confirmed: bool = False) -> list[Evaluation]:
        """Return the evaluations of programs; ``confirmed`` ones come from ``EvaluationPool.replay``."""
        keys = [pool.key(code) for code in codes]
        new = {
            key: code for key, code in zip(keys, codes, strict=True) if (key, confirmed) not in self._known
        }
        run = pool.replay if confirmed else pool.evaluate
        results = run(list(new.values())) if new else []
        for key, result in zip(new, results, strict=True):
            evaluation = replace(result, repeat=False)
            self._known[key, confirmed] = evaluation
            self.executed += 1
            if evaluation.isolation is not Isolation.KILLED:
                self._write(msgspec.json.encode(_StateLine(key, confirmed, evaluation)) + b"\n")
        return [self._known[key, confirmed] for key in keys]

    def _open(self, state: Path) -> None:
        self._descriptor = os.open(state, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        text = state.read_bytes()
        complete = text[: text.rfind(b"\n") + 1]
        if not complete.startswith(self._head) and (complete or not self._head.startswith(text)):
            raise RunDirectoryError(
                f"{state} is not a state file of this version: give another file, or remove it"
            )
        try:
            lines = [msgspec.json.decode(line, type=_StateLine) for line in complete.splitlines()[1:]]
        except UNREADABLE as error:
            raise RunDirectoryError(f"cannot read {state}: {one_line(str(error))}; remove it") from error
        self._known = {(line.key, line.confirmed): line.evaluation for line in lines}
        os.ftruncate(self._descriptor, len(complete))
        if not complete:
            self._write(self._head)

    def _write(self, line: bytes) -> None:
        if self._state is not None:
            with storage_errors(self._state.parent, "give the command again: it goes on from here"):
                write_all(self._descriptor, line)


@dataclass
class RunPrograms:
    """The evaluator of one run: repeats and nondeterministic programs are counted within the run."""

    pool: LazyPool
    evaluations: Evaluations
    _seen: set[str] = field(default_factory=set)
    _nondeterministic: dict[str, Evaluation] = field(default_factory=dict)

    def evaluate(self, codes: Sequence[str]) -> list[Evaluation]:
        """Evaluate programs in order; a program that an earlier one of the run equals is a repeat."""
        results = []
        for code, result in zip(codes, self.evaluations.results(self.pool, codes), strict=True):
            key = self.pool.key(code)
            results.append(replace(self._nondeterministic.get(key, result), repeat=key in self._seen))
            self._seen.add(key)
        return results

    def replay(self, codes: Sequence[str]) -> list[Evaluation]:
        """Evaluate every instance twice; a program found to be nondeterministic stays so in this run."""
        self.evaluations.results(self.pool, codes)
        results = self.evaluations.results(self.pool, codes, confirmed=True)
        for code, result in zip(codes, results, strict=True):
            if result.isolation is Isolation.NONDETERMINISTIC:
                self._nondeterministic[self.pool.key(code)] = result
        return results

    def skip(self, codes: Sequence[str]) -> None:
        """Count programs of the run that are not executed: later equal ones are repeats."""
        self._seen.update(self.pool.key(code) for code in codes)

    @contextmanager
    def with_more_time(self) -> Iterator["RunPrograms"]:
        """Yield the same evaluator with ``TIME_FACTOR`` times the time limit."""
        problem, split, limits = self.pool.settings
        more = msgspec.structs.replace(limits, timeout_s=TIME_FACTOR * limits.timeout_s)
        with closing(LazyPool(problem, split, more)) as pool:
            yield RunPrograms(pool, self.evaluations)


class ProgramRunner:
    """Executes programs in one pool at a time, which is reused while problem, split and limits stay the same.

    Close it after use.
    """

    def __init__(self, evaluations: Evaluations, slots: int) -> None:
        self._evaluations, self._slots = evaluations, slots
        self._pool: LazyPool | None = None

    def close(self) -> None:
        """End every process of the open pool."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None

    def programs(self, problem: Problem, split: str, recorded: EvaluationSettings) -> RunPrograms:
        """Return the evaluator of a run with these limits; raises ConfigError where they are too large."""
        settings = (problem, split, limits_here(recorded, self._slots))
        if self._pool is None or self._pool.settings != settings:
            self.close()
            self._pool = LazyPool(*settings)
        return RunPrograms(self._pool, self._evaluations)
