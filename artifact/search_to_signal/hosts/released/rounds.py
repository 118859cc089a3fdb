"""From what the released host did with one group to our records."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from search_to_signal.hosts.base import HostError
from search_to_signal.hosts.released.trainer import (
    bases_of,
    operator_named,
    operator_of,
    outcome_of,
    score_of,
)
from search_to_signal.programs.canonical import program_sha256, sha256_text
from search_to_signal.programs.parsing import Proposal, parse
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    HeuristicRecord,
    Operator,
    Outcome,
    StepRecord,
)
from search_to_signal.search.archive import archive_gap, frontier
from search_to_signal.search.exposure import exposures
from search_to_signal.search.settings import SearchSettings
from search_to_signal.search.state import Member, SearchState, heuristic_record
from search_to_signal.search.transition import Evaluated


@dataclass(frozen=True)
class Round:
    """One call of the released reward function; ``native`` is what it returned, ``seen`` what it made."""

    step: int
    prompt: str
    texts: tuple[str, ...]
    native: tuple[float, ...]
    seen: tuple[Any, ...]
    before: SearchState
    after: SearchState
    settings: SearchSettings
    tokenizer: Any = None

    @property
    def bases(self) -> tuple[Member, ...]:
        """The archived members that the prompt shows."""
        return bases_of(self.prompt, self.before.archive)

    @property
    def operator(self) -> Operator:
        """As the host names it on what it made, else as the prompt's words show it."""
        named = (operator_named(algo.parent_prompt_type) for algo in self.seen)
        return next((name for name in named if name), operator_of(self.prompt, self.bases))

    def tokens(self, text: str) -> int:
        """Length by the trainer's tokenizer; 0 where it has none."""
        return len(self.tokenizer(text)["input_ids"]) if self.tokenizer is not None else 0


def _evaluated(played: Round, rescore: Callable[[str], float | None]) -> Iterator[Evaluated]:
    for text, reward in zip(played.texts, played.native, strict=True):
        outcome, proposal = outcome_of(reward), parse(text)
        idea, code = (proposal.idea, proposal.code) if isinstance(proposal, Proposal) else ("", "")
        score = None
        if outcome is Outcome.VALID:
            score = score_of(text, played.seen, played.after.archive, rescore)
            if score is None:
                raise HostError(
                    f"the released host gave {reward} to a completion whose performance nobody can tell: "
                    "its rewards are not those of the paper, or it runs what we do not see"
                )
            if not math.isfinite(score):  # never a score of ours (D17), whatever the host makes of it
                outcome, score = Outcome.RUNTIME_FAILURE, None
        yield Evaluated(outcome, idea, code, score, program_sha256(code) if code else None)


def _events(played: Round, results: Sequence[Evaluated]) -> Iterator[ArchiveEvent]:
    """Admitted is what stands in the archive afterwards and did not before, each once."""
    waiting = [member.id for member in _new(played)]
    for result in results:
        if result.score is None:
            yield ArchiveEvent.INVALID
        elif result.program in waiting:
            waiting.remove(result.program)
            yield ArchiveEvent.ADMITTED
        else:
            yield ArchiveEvent.DUPLICATE_SCORE


def _new(played: Round) -> list[Member]:
    known = {member.code for member in played.before.archive}
    return [member for member in played.after.archive if member.code not in known]


def records_of(played: Round, problem: str, rescore: Callable[[str], float | None]) -> list[CompletionRecord]:
    """The records of a group before any reward; contexts are those before the group (D22)."""
    results = list(_evaluated(played, rescore))
    archive, bases = played.before.archive, played.bases
    reach = exposures(played.before, results, played.settings)
    prompt, shown, operator = sha256_text(played.prompt), {base.id for base in bases}, played.operator
    return [
        CompletionRecord(
            step=played.step,
            index=index,
            problem=problem,
            operator=operator,
            prompt_sha256=prompt,
            parents=tuple(base.id for base in bases),
            base_scores=tuple(base.score for base in bases),
            frontier=frontier(archive),
            archive_size=len(archive),
            outcome=result.outcome,
            detail="",
            score=result.score,
            evaluation="released" if result.outcome.evaluated else "not_run",
            response_sha256=sha256_text(text),
            program_sha256=result.program,
            matches_base_code=result.program in shown,
            archive_gap=None if result.score is None else archive_gap(archive, result.score),
            exposure=reach[index],
            prompt_tokens=played.tokens(played.prompt),
            completion_tokens=played.tokens(text),
            truncated=False,
            archive_event=event,
            components=None,
            reward=None,
            advantage=None,
        )
        for index, (text, result, event) in enumerate(
            zip(played.texts, results, _events(played, results), strict=True)
        )
    ]


def heuristics_of(played: Round) -> Iterator[HeuristicRecord]:
    """The heuristics that a group brought into the archive; before the first group, those in it."""
    if played.step == 0:
        for member in played.before.archive:
            yield heuristic_record(replace(member, step=0, index=0))
    codes = [proposal.code if isinstance(proposal := parse(text), Proposal) else "" for text in played.texts]
    for member in _new(played):
        index = codes.index(member.code.strip()) if member.code.strip() in codes else 0
        yield heuristic_record(replace(member, step=played.step, index=index))


def step_of(
    played: Round, records: Sequence[CompletionRecord], last: SearchState | None, mapping: str
) -> StepRecord:
    """The record of the group; what the released trainer keeps to itself (loss, adapter, cut) is absent."""
    lost = last is not None and len(played.before.archive) < len(last.archive)
    return StepRecord(
        step=played.step,
        operator=played.operator,
        prompt_sha256=records[0].prompt_sha256,
        collapsed=lost,
        stagnation=played.after.stagnation,
        archive_size=len(played.after.archive),
        frontier_before=frontier(played.before.archive),
        frontier_after=frontier(played.after.archive),
        valid=sum(record.score is not None for record in records),
        admitted=sum(record.archive_event is ArchiveEvent.ADMITTED for record in records),
        mapping=mapping,
        zero_advantage=all(record.advantage == 0 for record in records),
        loss=None,
        kl=None,
        grad_norm=None,
        training_tokens=sum(record.completion_tokens for record in records),
        adapter_sha256=None,
        prompt_tokens_cut=None,
    )
