"""One group of recorded texts: parsed again, executed again, held against what is recorded of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import UNSET

from search_to_signal.evaluation.outcomes import Isolation
from search_to_signal.generators.base import Completion
from search_to_signal.loop.group import (
    EvaluatedCompletion,
    evaluate_group,
    evaluation_kind,
    replay_admitted,
)
from search_to_signal.programs.canonical import program_sha256, sha256_text
from search_to_signal.programs.parsing import Proposal, parse
from search_to_signal.records.probe import ProbeRecord
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, IdeaEnd
from search_to_signal.verification.findings import LIMITED, NOT_RUN, Ending, Finding, differences, same_bits
from search_to_signal.verification.recompute.programs import RunPrograms

Record = CompletionRecord | ProbeRecord
_CUT_OFF = (Isolation.TIMEOUT, Isolation.KILLED)


@dataclass(frozen=True)
class Text:
    """A recorded completion: where it stands, what is recorded of it, and the completion itself."""

    where: str
    record: Record
    completion: Completion


def text_findings(
    texts: Sequence[Text], programs: RunPrograms, execute: bool, idea_end: IdeaEnd
) -> Iterator[Finding]:
    """What is otherwise in a group; without ``execute`` only what parsing decides is looked at.

    ``idea_end`` is how its run reads texts (D37).
    """
    proposals = [parse(text.completion.text, idea_end) for text in texts]
    codes = [item.code if isinstance(item, Proposal) else None for item in proposals]
    found: Sequence[EvaluatedCompletion | None]
    if execute:
        found = _judged(texts, programs, idea_end)
    else:
        programs.skip([code for code in codes if code is not None])
        unusable = [text.completion for text, code in zip(texts, codes, strict=True) if code is None]
        failed = iter(evaluate_group(unusable, programs, idea_end))
        found = [next(failed) if code is None else None for code in codes]
    for text, code, judged in zip(texts, codes, found, strict=True):
        yield from _hashes(text, code)
        if judged is not None:
            yield from differences(text.where, _recorded(text.record), _found(judged))
            yield from _instances(text, judged)
            yield from _repeats(text, judged)
        elif text.record.evaluation == NOT_RUN:
            yield Finding(text.where, "its program is recorded as not run")


def _judged(texts: Sequence[Text], programs: RunPrograms, idea_end: IdeaEnd) -> list[EvaluatedCompletion]:
    """Every text as the live run judges it; what was cut off here and not there is given more time."""
    found = _ran(texts, programs, idea_end)
    cut_off = [
        index
        for index, (text, judged) in enumerate(zip(texts, found, strict=True))
        if judged.evaluation is not None
        and judged.evaluation.isolation in _CUT_OFF
        and _isolation(text.record) not in LIMITED
    ]
    if cut_off:
        with programs.with_more_time() as slower:
            again = _ran([texts[index] for index in cut_off], slower, idea_end)
        for index, judged in zip(cut_off, again, strict=True):
            before, after = found[index].evaluation, judged.evaluation
            if before is not None and after is not None:
                found[index] = replace(judged, evaluation=replace(after, repeat=before.repeat))
    return found


def _ran(texts: Sequence[Text], programs: RunPrograms, idea_end: IdeaEnd) -> list[EvaluatedCompletion]:
    judged = evaluate_group([text.completion for text in texts], programs, idea_end)
    # Only what enters an archive is decided twice.
    events = [getattr(text.record, "archive_event", ArchiveEvent.INVALID) for text in texts]
    return replay_admitted(judged, events, programs)


def _hashes(text: Text, code: str | None) -> Iterator[Finding]:
    program = None if code is None else program_sha256(code)
    if text.record.response_sha256 != sha256_text(text.completion.text):
        yield Finding(text.where, "response_sha256 is not that of its text")
    if text.record.program_sha256 != program:
        yield Finding(text.where, "program_sha256 is not that of its text")


def _instances(text: Text, judged: EvaluatedCompletion) -> Iterator[Finding]:
    """Recorded scores of the instances that its program gives otherwise, though their mean is the same."""
    recorded, found = getattr(text.record, "instance_scores", UNSET), judged.evaluation
    if recorded is UNSET or found is None or not same_bits(text.record.score, judged.score):
        return
    if not same_bits(recorded, found.per_instance):
        chance = found.isolation is Isolation.NONDETERMINISTIC
        told = f"instance_scores {recorded} are recorded, its program gives {found.per_instance}"
        yield Finding(text.where, told, not chance)


def _isolation(record: Record) -> str:
    return record.evaluation.partition(", ")[0]


def _recorded(record: Record) -> Ending:
    return Ending(record.outcome, _isolation(record), record.detail, record.score)


def _found(judged: EvaluatedCompletion) -> Ending:
    isolation = NOT_RUN if judged.evaluation is None else judged.evaluation.isolation.value
    return Ending(judged.outcome, isolation, judged.detail, judged.score)


def _repeats(text: Text, judged: EvaluatedCompletion) -> Iterator[Finding]:
    # Which kernels score is a matter of the machine, and changes no bit.
    recorded, found = (kind.endswith("repeat") for kind in (text.record.evaluation, evaluation_kind(judged)))
    if recorded != found:
        known = "" if found else "no "
        yield Finding(text.where, f"evaluation is {text.record.evaluation}: {known}equal program came before")
