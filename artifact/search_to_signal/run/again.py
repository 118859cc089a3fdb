"""Recorded programs, executed again: how they end, compared with their records."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UNSET

from search_to_signal.base.progress import Progress
from search_to_signal.base.seeding import stream
from search_to_signal.models.base import Completion
from search_to_signal.records.differences import Finding, same_bits
from search_to_signal.records.probe import ProbeRecord
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, IdeaEnd, Outcome
from search_to_signal.run.group import EvaluatedCompletion, evaluate_group, evaluation_kind, replay_admitted
from search_to_signal.run.texts import Tokenizers
from search_to_signal.sandbox.again import ProgramRunner, RunPrograms
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.programs import Proposal, parse, program_sha256, sha256_text

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
    failed = recorded.outcome is Outcome.RUNTIME_FAILURE and recorded.value is None
    if limited and actual.isolation not in LIMITED and failed:
        yield Finding(where, f"recorded as {recorded.isolation}, here it ended as {actual.isolation}", False)
        return
    if recorded.outcome is not actual.outcome:
        ended = f"{actual.outcome.value} ({actual.isolation}: {actual.detail})"
        yield Finding(where, f"outcome {recorded.outcome.value} is recorded, but its text gives {ended}")
    elif not same_bits(recorded.value, actual.value):
        chance = recorded.isolation == actual.isolation == Isolation.NONDETERMINISTIC.value
        text = "its program is not deterministic" if chance else _value_text(recorded.value, actual.value)
        yield Finding(where, text, not chance)
    elif not limited:
        yield from _compare_details(where, recorded, actual)


def _value_text(recorded: Any, actual: Any) -> str:
    gap = f" ({actual - recorded:+.3g})" if isinstance(recorded, float) and isinstance(actual, float) else ""
    return f"score {recorded} is recorded, but its program gives {actual}{gap}"


def _compare_details(where: str, recorded: Ending, actual: Ending) -> Iterator[Finding]:
    if recorded.isolation != actual.isolation:
        chance = {recorded.isolation, actual.isolation} == _DETERMINED
        text = f"evaluation {recorded.isolation} is recorded, but here it is {actual.isolation}"
        yield Finding(where, text, not chance)
    elif recorded.detail != actual.detail:
        # Library versions word the rest of a message differently.
        alike = actual.isolation != NOT_RUN and _error_class(recorded.detail) == _error_class(actual.detail)
        text = f"detail {recorded.detail!r} is recorded, but here it is {actual.detail!r}"
        yield Finding(where, "the error has the same class and another message" if alike else text, not alike)


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
            record = text.record
            recorded = Ending(record.outcome, _isolation(record), record.detail, record.score)
            now = Ending(actual.outcome, isolation_of(actual), actual.detail, actual.score)
            yield from compare_endings(text.where, recorded, now)
            yield from _compare_instances(text, actual)
            # The rest of an evaluation's kind names the scoring kernel, which depends on the machine.
            kind, repeat = text.record.evaluation, evaluation_kind(actual).endswith("repeat")
            if kind.endswith("repeat") != repeat:
                known = "" if repeat else "no "
                yield Finding(text.where, f"evaluation is {kind}: but {known}equal program came before")
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
        yield Finding(text.where, "response_sha256 does not match its text")
    if text.record.program_sha256 != program:
        yield Finding(text.where, "program_sha256 does not match its text")


def _compare_instances(text: RecordedText, actual: EvaluatedCompletion) -> Iterator[Finding]:
    recorded, evaluation = getattr(text.record, "instance_scores", UNSET), actual.evaluation
    if recorded is UNSET or evaluation is None or not same_bits(text.record.score, actual.score):
        return
    if not same_bits(recorded, evaluation.per_instance):
        chance = evaluation.isolation is Isolation.NONDETERMINISTIC
        difference = (
            f"instance_scores {recorded} are recorded, but its program gives {evaluation.per_instance}"
        )
        yield Finding(text.where, difference, not chance)


def _isolation(record: Record) -> str:
    return record.evaluation.partition(", ")[0]


def isolation_of(actual: EvaluatedCompletion) -> str:
    """How an evaluation ended; ``not_run`` where there was none."""
    return NOT_RUN if actual.evaluation is None else actual.evaluation.isolation.value


# What all parts of a recomputation share: sample of groups, program runner, tokenizers, progress, counts.


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
