"""One group on its way from completions to records: what search and learner both read."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from search_to_signal.learner.base import StepResult
from search_to_signal.models.base import Completion, Generation
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    GenerationRecord,
    IdeaEnd,
    Outcome,
    StepRecord,
)
from search_to_signal.sandbox.outcomes import Evaluation, Isolation
from search_to_signal.sandbox.programs import Failure, Proposal, parse, program_sha256, sha256_text
from search_to_signal.search.host import Request, Transition
from search_to_signal.search.member import Evaluated, frontier, nearest, scores


class Evaluator(Protocol):
    """What evaluates programs, in order: an evaluation pool, or what stands before one."""

    def evaluate(self, codes: Sequence[str]) -> list[Evaluation]:
        """Run programs on all instances.

        Args:
            codes: Their texts.

        Returns:
            One evaluation per text, in order; a score is higher for a better program.

        Raises:
            SandboxError: The isolation failed, not a program.
        """

    def replay(self, codes: Sequence[str]) -> list[Evaluation]:
        """Run valid programs once more, in another environment, before they are admitted (D20).

        Args:
            codes: Their texts.

        Returns:
            As ``evaluate``; the isolation of one that decided otherwise is ``NONDETERMINISTIC``.

        Raises:
            SandboxError: As ``evaluate`` does.
        """


@dataclass(frozen=True)
class EvaluatedCompletion:
    """One completion after parsing and evaluation; ``evaluation`` is absent for what never ran.

    ``instance_scores`` are empty unless the run's host asks for them.
    """

    completion: Completion
    outcome: Outcome
    detail: str
    score: float | None
    proposal: Proposal | None
    program: str | None
    evaluation: Evaluation | None
    instance_scores: tuple[float, ...] = ()

    @property
    def evaluated(self) -> Evaluated:
        """What the search sees."""
        if self.proposal is None:
            return Evaluated(self.outcome)
        idea, code = self.proposal.idea, self.proposal.code
        text, scores = self.completion.text, self.instance_scores
        return Evaluated(self.outcome, idea, code, self.score, self.program, text, scores)


# Addresses differ from run to run, and records must not.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def _ran(
    completion: Completion, proposal: Proposal, evaluation: Evaluation, instances: bool
) -> EvaluatedCompletion:
    program = program_sha256(proposal.code)
    detail = _ADDRESS.sub("0x", evaluation.detail)
    scores = evaluation.per_instance if instances else ()
    return EvaluatedCompletion(
        completion, evaluation.outcome, detail, evaluation.score, proposal, program, evaluation, scores
    )


def evaluate_group(
    completions: Sequence[Completion], pool: Evaluator, idea_end: IdeaEnd, instances: bool = False
) -> list[EvaluatedCompletion]:
    """Parse and evaluate the completions of a group, in order; ``idea_end`` is its run's (D37).

    ``instances`` keeps the score of each instance, for a host that asks for them.
    """
    parsed = [parse(completion.text, idea_end) for completion in completions]
    codes = [item.code for item in parsed if isinstance(item, Proposal)]
    evaluations = iter(pool.evaluate(codes))
    return [
        EvaluatedCompletion(completion, item.outcome, item.detail, None, None, None, None)
        if isinstance(item, Failure)
        else _ran(completion, item, next(evaluations), instances)
        for completion, item in zip(completions, parsed, strict=True)
    ]


def replay_admitted(
    evaluated: Sequence[EvaluatedCompletion], events: Sequence[ArchiveEvent], pool: Evaluator
) -> list[EvaluatedCompletion]:
    """Repeat what entered the archive in a differently seeded fork server; outcomes and scores stay (D20)."""
    codes = {
        index: item.proposal.code
        for index, (item, event) in enumerate(zip(evaluated, events, strict=True))
        if event is ArchiveEvent.ADMITTED and item.proposal is not None
    }
    confirmed = list(evaluated)
    for index, again in zip(codes, pool.replay(list(codes.values())), strict=True):
        if (evaluation := evaluated[index].evaluation) is not None:
            evaluation = replace(evaluation, isolation=again.isolation, detail=again.detail)
            confirmed[index] = replace(evaluated[index], evaluation=evaluation)
    return confirmed


def nondeterministic_programs(replayed: Iterable[EvaluatedCompletion]) -> dict[str, str]:
    """The texts of the programs that a replay found to decide otherwise, each with the detail of that."""
    return {
        item.proposal.code: item.evaluation.detail
        for item in replayed
        if item.proposal is not None
        and item.evaluation is not None
        and item.evaluation.isolation is Isolation.NONDETERMINISTIC
    }


def replayed_record(
    record: CompletionRecord, replayed: EvaluatedCompletion, found: Mapping[str, str]
) -> CompletionRecord:
    """The record with what replays say: its own, and for a repeat those of earlier groups (``found``)."""
    evaluation, proposal = replayed.evaluation, replayed.proposal
    if evaluation is None or proposal is None or not evaluation.repeat or proposal.code not in found:
        return msgspec.structs.replace(record, evaluation=evaluation_kind(replayed))
    detail = found[proposal.code]
    again = replace(evaluation, isolation=Isolation.NONDETERMINISTIC, detail=detail)
    kind = evaluation_kind(replace(replayed, evaluation=again))
    return msgspec.structs.replace(record, evaluation=kind, detail=_ADDRESS.sub("0x", detail))


def evaluation_kind(evaluated: EvaluatedCompletion) -> str:
    """How the evaluation ended, as a record's ``evaluation`` says it."""
    if evaluated.evaluation is None:
        return "not_run"
    notes = [evaluated.evaluation.isolation.value]
    if evaluated.evaluation.score_path == "fallback":
        notes.append("fallback")
    if evaluated.evaluation.repeat:
        notes.append("repeat")
    return ", ".join(notes)


def completion_records(
    request: Request,
    step: int,
    problem: str,
    generation: Generation,
    evaluated: Sequence[EvaluatedCompletion],
    events: Sequence[ArchiveEvent],
    exposures: Sequence[float | None],
) -> list[CompletionRecord]:
    """The records of a group before any reward; everything in them was known to the search alone."""
    prompt = sha256_text(generation.prompt)
    archive, bases = request.archive, request.bases
    base_programs = {base.id for base in bases}
    best, archived = frontier(archive), scores(archive)
    return [
        CompletionRecord(
            step=step,
            index=index,
            problem=problem,
            operator=request.operator,
            prompt_sha256=prompt,
            parents=tuple(parent.id for parent in request.parents),
            base_scores=tuple(base.score for base in bases),
            frontier=best,
            archive_size=len(archive),
            outcome=item.outcome,
            detail=item.detail,
            score=item.score,
            evaluation=evaluation_kind(item),
            response_sha256=sha256_text(item.completion.text),
            program_sha256=item.program,
            matches_base_code=item.program in base_programs,
            archive_gap=None if item.score is None else nearest(archived, item.score),
            exposure=exposures[index],
            prompt_tokens=generation.prompt_tokens(index),
            completion_tokens=item.completion.tokens,
            truncated=item.completion.truncated,
            archive_event=events[index],
            components=None,
            reward=None,
            advantage=None,
            instance_scores=item.instance_scores or msgspec.UNSET,
        )
        for index, item in enumerate(evaluated)
    ]


def step_record(
    request: Request,
    transition: Transition,
    generation: Generation,
    records: list[CompletionRecord],
    mapping: str | None,
    result: StepResult | None,
) -> StepRecord:
    """The record of a group of a run with this mapping; ``result`` is that of its optimizer opportunity.

    Both are None when frozen; without the result alone the learner's fields are not said.
    """
    difference = None if result is None else result.sampler_difference
    return StepRecord(
        step=records[0].step,
        operator=request.operator,
        prompt_sha256=records[0].prompt_sha256,
        collapsed=request.collapsed,
        stagnation=transition.stagnation,
        archive_size=len(transition.archive),
        frontier_before=records[0].frontier,
        frontier_after=frontier(transition.archive),
        valid=sum(record.score is not None for record in records),
        admitted=sum(record.archive_event is ArchiveEvent.ADMITTED for record in records),
        mapping=mapping,
        zero_advantage=None if mapping is None else all(record.advantage == 0 for record in records),
        loss=result.loss if result else None,
        kl=result.kl if result else None,
        grad_norm=result.grad_norm if result else None,
        training_tokens=result.training_tokens if result else 0,
        adapter_sha256=result.adapter_sha256 if result else None,
        prompt_tokens_cut=generation.prompt_tokens_cut,
        not_finite=True if result is not None and result.not_finite else msgspec.UNSET,
        sampler_difference=msgspec.UNSET if difference is None else difference,
        dropped=(result and result.dropped) or msgspec.UNSET,
    )


def generation_record(step: int, generation: Generation) -> GenerationRecord:
    """The record of what was sampled."""
    return GenerationRecord(
        step=step,
        prompt=generation.prompt,
        prompt_ids=generation.prompt_ids,
        completion_ids=tuple(completion.ids for completion in generation.completions),
        completions=tuple(completion.text for completion in generation.completions),
        requests=generation.requests,
    )
