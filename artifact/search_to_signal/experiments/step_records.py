"""What a group leaves beside its completions: the records of its step, its tokens, its heuristics."""

from search_to_signal.experiments.configuration import RunConfig
from search_to_signal.generators.base import Generation
from search_to_signal.hosts.base import Effect, Question
from search_to_signal.learner.base import StepResult
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    GenerationRecord,
    StepRecord,
)
from search_to_signal.search.archive import frontier


def step_record(
    question: Question,
    effect: Effect,
    generation: Generation,
    records: list[CompletionRecord],
    config: RunConfig,
    result: StepResult | None,
) -> StepRecord:
    """The record of a group; ``result`` is that of its optimizer opportunity, None when frozen."""
    trained = result is not None
    return StepRecord(
        step=records[0].step,
        operator=question.operator,
        prompt_sha256=records[0].prompt_sha256,
        collapsed=question.collapsed,
        stagnation=effect.stagnation,
        archive_size=len(effect.archive),
        frontier_before=frontier(question.archive),
        frontier_after=frontier(effect.archive),
        valid=sum(record.score is not None for record in records),
        admitted=sum(record.archive_event is ArchiveEvent.ADMITTED for record in records),
        mapping=config.mapping if trained else None,
        zero_advantage=all(record.advantage == 0 for record in records) if trained else None,
        loss=result.loss if result else None,
        kl=result.kl if result else None,
        grad_norm=result.grad_norm if result else None,
        training_tokens=result.training_tokens if result else 0,
        adapter_sha256=result.adapter_sha256 if result else None,
        prompt_tokens_cut=generation.prompt_tokens_cut,
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
