"""Programs executed again, in isolation and within bounded limits; equal programs are executed once."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from search_to_signal.base.errors import UNREADABLE, ConfigError, RunDirectoryError
from search_to_signal.base.progress import one_line
from search_to_signal.models.base import Completion
from search_to_signal.problems.base import Problem
from search_to_signal.records.differences import same_bits
from search_to_signal.records.files import storage_errors, write_all
from search_to_signal.records.probe import ProbeRecord
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, IdeaEnd, Outcome
from search_to_signal.run.group import EvaluatedCompletion, evaluate_group, evaluation_kind, replay_admitted
from search_to_signal.sandbox.outcomes import Evaluation, Isolation
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import Proposal, parse, program_sha256, sha256_text
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.verify.findings import Finding

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
                f"evaluation.{name} is recorded as {getattr(recorded, name)}, no program is run here with "
                f"more than {largest}: nothing of it was executed"
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
            raise RunDirectoryError(f"{state} is no state file of this version: name another, or remove it")
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
            with storage_errors(self._state.parent, "give the command again, which goes on"):
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


# How a program ended, as recorded and as executed again, and the rule by which the two are compared.

# A program that is ended by processor time or by another process: honest runs may differ in this alone.
LIMITED = (Isolation.TIMEOUT.value, Isolation.KILLED.value)
NOT_RUN = "not_run"
_DETERMINED = {Isolation.OK.value, Isolation.NONDETERMINISTIC.value}


@dataclass(frozen=True)
class Ending:
    """How a completion ended. ``value`` is its score, its scores, or a hash of them; None where it failed."""

    outcome: Outcome
    isolation: str
    detail: str
    value: Any


def compare_endings(where: str, recorded: Ending, actual: Ending) -> Iterator[Finding]:
    """Yield the differences of two endings of one program, none where they agree.

    Findings without comparison are: a recorded time limit or kill where the program now ends by itself, the
    value of a program that is nondeterministic both times, whether it is nondeterministic, and the wording of
    an error of equal class. A program that is recorded as ended by itself has to end by itself now.
    """
    limited = recorded.isolation in LIMITED
    if limited and actual.isolation not in LIMITED and _has_failed(recorded):
        yield Finding(where, f"recorded as {recorded.isolation}, which ends here: {actual.isolation}", False)
        return
    if recorded.outcome is not actual.outcome:
        ended = f"{actual.outcome.value} ({actual.isolation}: {actual.detail})"
        yield Finding(where, f"outcome {recorded.outcome.value} is recorded, its text gives {ended}")
    elif not same_bits(recorded.value, actual.value):
        chance = recorded.isolation == actual.isolation == Isolation.NONDETERMINISTIC.value
        text = "its program decides by chance" if chance else _value_text(recorded.value, actual.value)
        yield Finding(where, text, not chance)
    elif not limited:
        yield from _compare_details(where, recorded, actual)


def _has_failed(ending: Ending) -> bool:
    return ending.outcome is Outcome.RUNTIME_FAILURE and ending.value is None


def _value_text(recorded: Any, actual: Any) -> str:
    gap = f" ({actual - recorded:+.3g})" if isinstance(recorded, float) and isinstance(actual, float) else ""
    return f"score {recorded} is recorded, its program gives {actual}{gap}"


def _compare_details(where: str, recorded: Ending, actual: Ending) -> Iterator[Finding]:
    if recorded.isolation != actual.isolation:
        chance = {recorded.isolation, actual.isolation} == _DETERMINED
        text = f"evaluation {recorded.isolation} is recorded, here it is {actual.isolation}"
        yield Finding(where, text, not chance)
    elif recorded.detail != actual.detail:
        # Library versions word the rest of a message differently.
        alike = actual.isolation != NOT_RUN and _error_class(recorded.detail) == _error_class(actual.detail)
        text = f"detail {recorded.detail!r} is recorded, here it is {actual.detail!r}"
        yield Finding(where, "an error of the same class in other words" if alike else text, not alike)


def _error_class(detail: str) -> str:
    return detail.partition(":")[0]


# Recorded texts, parsed and executed again, and compared with their records.

Record = CompletionRecord | ProbeRecord


@dataclass(frozen=True)
class RecordedText:
    """A recorded completion: its place, its record, and the completion itself."""

    where: str
    record: Record
    completion: Completion


def text_findings(
    texts: Sequence[RecordedText], programs: RunPrograms, execute: bool, idea_end: IdeaEnd
) -> Iterator[Finding]:
    """Yield the differences of a group from its texts; without ``execute`` only those that parsing shows.

    ``idea_end`` is the run's rule for where an idea ends (D37).
    """
    proposals = [parse(text.completion.text, idea_end) for text in texts]
    codes = [item.code if isinstance(item, Proposal) else None for item in proposals]
    evaluated: Sequence[EvaluatedCompletion | None]
    if execute:
        limited = lambda record: _isolation(record) in LIMITED  # noqa: E731
        evaluated = evaluate_again(texts, programs, idea_end, limited)
    else:
        programs.skip([code for code in codes if code is not None])
        unusable = [text.completion for text, code in zip(texts, codes, strict=True) if code is None]
        failures = iter(evaluate_group(unusable, programs, idea_end))
        evaluated = [next(failures) if code is None else None for code in codes]
    for text, code, actual in zip(texts, codes, evaluated, strict=True):
        yield from hash_findings(text, code)
        if actual is not None:
            yield from compare_endings(text.where, _recorded_ending(text.record), _ending(actual))
            yield from _compare_instances(text, actual)
            yield from _compare_repeats(text, actual)
        elif text.record.evaluation == NOT_RUN:
            yield Finding(text.where, "its program is recorded as not run")


def evaluate_again(
    texts: Sequence[RecordedText], programs: RunPrograms, idea_end: IdeaEnd, limited: Callable[[Record], bool]
) -> list[EvaluatedCompletion]:
    """Evaluate texts as the live run does.

    Programs that only here reach a limit get more time; ``limited`` tells whether a record may say of one.
    """
    evaluated = _evaluate_once(texts, programs, idea_end)
    slow = [
        index
        for index, (text, actual) in enumerate(zip(texts, evaluated, strict=True))
        if isolation_of(actual) in LIMITED and not limited(text.record)
    ]
    if slow:
        with programs.with_more_time() as slower:
            again = _evaluate_once([texts[index] for index in slow], slower, idea_end)
        for index, actual in zip(slow, again, strict=True):
            before, after = evaluated[index].evaluation, actual.evaluation
            if before is not None and after is not None:
                evaluated[index] = replace(actual, evaluation=replace(after, repeat=before.repeat))
    return evaluated


def _evaluate_once(
    texts: Sequence[RecordedText], programs: RunPrograms, idea_end: IdeaEnd
) -> list[EvaluatedCompletion]:
    evaluated = evaluate_group([text.completion for text in texts], programs, idea_end)
    # The live run executes only admitted programs a second time.
    events = [getattr(text.record, "archive_event", ArchiveEvent.INVALID) for text in texts]
    return replay_admitted(evaluated, events, programs)


def hash_findings(text: RecordedText, code: str | None) -> Iterator[Finding]:
    program = None if code is None else program_sha256(code)
    if text.record.response_sha256 != sha256_text(text.completion.text):
        yield Finding(text.where, "response_sha256 is not that of its text")
    if text.record.program_sha256 != program:
        yield Finding(text.where, "program_sha256 is not that of its text")


def _compare_instances(text: RecordedText, actual: EvaluatedCompletion) -> Iterator[Finding]:
    """Recorded scores of the instances that differ from the program's, though their mean is the same."""
    recorded, evaluation = getattr(text.record, "instance_scores", UNSET), actual.evaluation
    if recorded is UNSET or evaluation is None or not same_bits(text.record.score, actual.score):
        return
    if not same_bits(recorded, evaluation.per_instance):
        chance = evaluation.isolation is Isolation.NONDETERMINISTIC
        difference = f"instance_scores {recorded} are recorded, its program gives {evaluation.per_instance}"
        yield Finding(text.where, difference, not chance)


def _isolation(record: Record) -> str:
    return record.evaluation.partition(", ")[0]


def _recorded_ending(record: Record) -> Ending:
    return Ending(record.outcome, _isolation(record), record.detail, record.score)


def isolation_of(actual: EvaluatedCompletion) -> str:
    """How an evaluation ended; ``not_run`` where there was none."""
    return NOT_RUN if actual.evaluation is None else actual.evaluation.isolation.value


def _ending(actual: EvaluatedCompletion) -> Ending:
    return Ending(actual.outcome, isolation_of(actual), actual.detail, actual.score)


def _compare_repeats(text: RecordedText, actual: EvaluatedCompletion) -> Iterator[Finding]:
    # The rest of an evaluation's kind names the scoring kernel, which depends on the machine.
    recorded, repeat = (kind.endswith("repeat") for kind in (text.record.evaluation, evaluation_kind(actual)))
    if recorded != repeat:
        known = "" if repeat else "no "
        yield Finding(text.where, f"evaluation is {text.record.evaluation}: {known}equal program came before")
