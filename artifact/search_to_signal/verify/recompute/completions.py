"""One group of recorded texts, parsed and executed again, and compared with its records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import UNSET

from search_to_signal.models.base import Completion
from search_to_signal.records.probe import ProbeRecord
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, IdeaEnd
from search_to_signal.run.group import EvaluatedCompletion, evaluate_group, evaluation_kind, replay_admitted
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.programs import Proposal, parse, program_sha256, sha256_text
from search_to_signal.verify.findings import Finding
from search_to_signal.verify.recompute.programs import (
    LIMITED,
    NOT_RUN,
    Ending,
    RunPrograms,
    compare_endings,
    same_bits,
)

Record = CompletionRecord | ProbeRecord
_LIMITED_HERE = (Isolation.TIMEOUT, Isolation.KILLED)


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
        evaluated = _evaluate(texts, programs, idea_end)
    else:
        programs.skip([code for code in codes if code is not None])
        unusable = [text.completion for text, code in zip(texts, codes, strict=True) if code is None]
        failures = iter(evaluate_group(unusable, programs, idea_end))
        evaluated = [next(failures) if code is None else None for code in codes]
    for text, code, actual in zip(texts, codes, evaluated, strict=True):
        yield from _compare_hashes(text, code)
        if actual is not None:
            yield from compare_endings(text.where, _recorded_ending(text.record), _ending(actual))
            yield from _compare_instances(text, actual)
            yield from _compare_repeats(text, actual)
        elif text.record.evaluation == NOT_RUN:
            yield Finding(text.where, "its program is recorded as not run")


def _evaluate(
    texts: Sequence[RecordedText], programs: RunPrograms, idea_end: IdeaEnd
) -> list[EvaluatedCompletion]:
    """Evaluate texts as the live run does; programs that only here reach a limit get more time."""
    evaluated = _evaluate_once(texts, programs, idea_end)
    limited = [
        index
        for index, (text, actual) in enumerate(zip(texts, evaluated, strict=True))
        if actual.evaluation is not None
        and actual.evaluation.isolation in _LIMITED_HERE
        and _isolation(text.record) not in LIMITED
    ]
    if limited:
        with programs.with_more_time() as slower:
            again = _evaluate_once([texts[index] for index in limited], slower, idea_end)
        for index, actual in zip(limited, again, strict=True):
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


def _compare_hashes(text: RecordedText, code: str | None) -> Iterator[Finding]:
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


def _ending(actual: EvaluatedCompletion) -> Ending:
    isolation = NOT_RUN if actual.evaluation is None else actual.evaluation.isolation.value
    return Ending(actual.outcome, isolation, actual.detail, actual.score)


def _compare_repeats(text: RecordedText, actual: EvaluatedCompletion) -> Iterator[Finding]:
    # The rest of an evaluation's kind names the scoring kernel, which depends on the machine.
    recorded, repeat = (kind.endswith("repeat") for kind in (text.record.evaluation, evaluation_kind(actual)))
    if recorded != repeat:
        known = "" if repeat else "no "
        yield Finding(text.where, f"evaluation is {text.record.evaluation}: {known}equal program came before")
