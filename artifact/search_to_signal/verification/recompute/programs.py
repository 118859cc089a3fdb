"""Programs executed again, in isolation and within limits of ours; what ran once is not run twice."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from search_to_signal.errors import UNREADABLE, ConfigError, RunDirectoryError
from search_to_signal.evaluation.outcomes import Evaluation, Isolation
from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.problems.base import Problem
from search_to_signal.progress import one_line
from search_to_signal.records.files import storage_errors, write_all

# The most that a directory can have us spend on one program.
_MOST = {"timeout_s": 3600.0, "wall_factor": 10.0, "memory_mb": 8192, "spot_instances": 10_000}
# How much longer than recorded a program may take that is recorded as having ended by itself.
TIME_FACTOR = 4.0


class LazyPool:
    """An evaluation pool that starts its workers when a program has to run, if one has to."""

    def __init__(self, problem: Problem, split: str, limits: EvaluationSettings) -> None:
        self.what = (problem, split, limits)
        self._pool, self._started = EvaluationPool(problem, split, limits), False

    def key(self, code: str) -> str:
        """EvaluationPool.key, and the rule of randomness, which an evaluation has from its pool."""
        return f"{self._pool.key(code)} {self.what[2].randomness}"

    def evaluate(self, codes: Sequence[str]) -> list[Evaluation]:
        """EvaluationPool.evaluate."""
        return self._running().evaluate(codes)

    def replay(self, codes: Sequence[str]) -> list[Evaluation]:
        """EvaluationPool.replay."""
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
    """Recorded limits, which decide outcomes, on this machine: seccomp is required whatever they say.

    Raises ConfigError for limits beyond what any run of ours is given.
    """
    for name, most in _MOST.items():
        if not getattr(recorded, name) <= most:
            raise ConfigError(
                f"evaluation.{name} is recorded as {getattr(recorded, name)}, no program is run here with "
                f"more than {most}: nothing of it was executed"
            )
    return msgspec.structs.replace(recorded, slots=slots, require_seccomp=True)


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    confirmed: bool
    evaluation: Evaluation


class Evaluations:
    """What program texts gave, to be closed in the end.

    With a ``state`` file every result is appended to it and what it holds is not run again: whoever could
    write to it decides what is found. Raises RunDirectoryError for a file that is something else.
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
        """What programs give, by ``EvaluationPool.replay`` where a second run has to decide alike."""
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
                self._write(msgspec.json.encode(_Line(key, confirmed, evaluation)) + b"\n")
        return [self._known[key, confirmed] for key in keys]

    def _open(self, state: Path) -> None:
        self._descriptor = os.open(state, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        text = state.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if not whole.startswith(self._head) and (whole or not self._head.startswith(text)):
            raise RunDirectoryError(f"{state} is no state file of this version: name another, or remove it")
        try:
            lines = [msgspec.json.decode(line, type=_Line) for line in whole.splitlines()[1:]]
        except UNREADABLE as error:
            raise RunDirectoryError(f"cannot read {state}: {one_line(str(error))}; remove it") from error
        self._known = {(line.key, line.confirmed): line.evaluation for line in lines}
        os.ftruncate(self._descriptor, len(whole))
        if not whole:
            self._write(self._head)

    def _write(self, line: bytes) -> None:
        if self._state is not None:
            with storage_errors(self._state.parent, "give the command again, which goes on"):
                write_all(self._descriptor, line)


@dataclass
class RunPrograms:
    """Answers as the pool of one run would, for repeats and chance are that run's own."""

    pool: LazyPool
    evaluations: Evaluations
    _seen: set[str] = field(default_factory=set)
    _unsteady: dict[str, Evaluation] = field(default_factory=dict)

    def evaluate(self, codes: Sequence[str]) -> list[Evaluation]:
        """What programs give, in order; an equal program that came before in this run is a repeat."""
        results = []
        for code, result in zip(codes, self.evaluations.results(self.pool, codes), strict=True):
            key = self.pool.key(code)
            results.append(replace(self._unsteady.get(key, result), repeat=key in self._seen))
            self._seen.add(key)
        return results

    def replay(self, codes: Sequence[str]) -> list[Evaluation]:
        """What they give when every instance is decided twice; one found to decide by chance stays so."""
        self.evaluations.results(self.pool, codes)
        results = self.evaluations.results(self.pool, codes, confirmed=True)
        for code, result in zip(codes, results, strict=True):
            if result.isolation is Isolation.NONDETERMINISTIC:
                self._unsteady[self.pool.key(code)] = result
        return results

    def skip(self, codes: Sequence[str]) -> None:
        """Programs of the run that are not executed here: equal ones after them are repeats."""
        self._seen.update(self.pool.key(code) for code in codes)

    @contextmanager
    def with_more_time(self) -> Iterator["RunPrograms"]:
        """The same with TIME_FACTOR times the time."""
        problem, split, limits = self.pool.what
        more = msgspec.structs.replace(limits, timeout_s=TIME_FACTOR * limits.timeout_s)
        with closing(LazyPool(problem, split, more)) as pool:
            yield RunPrograms(pool, self.evaluations)


class ProgramRunner:
    """Where programs are executed: one pool at a time, kept while problem, split and limits stay.

    To be closed in the end.
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
        """For a run with these limits; raises ConfigError for limits that no run has."""
        what = (problem, split, limits_here(recorded, self._slots))
        if self._pool is None or self._pool.what != what:
            self.close()
            self._pool = LazyPool(*what)
        return RunPrograms(self._pool, self._evaluations)
