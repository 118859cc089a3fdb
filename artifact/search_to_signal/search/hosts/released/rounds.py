"""From what the released host did with one group to our records."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from search_to_signal.base.errors import HostError
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    HeuristicRecord,
    Operator,
    Outcome,
    RequestRecord,
    StepRecord,
)
from search_to_signal.sandbox.programs import Proposal, parse, program_sha256, sha256_text
from search_to_signal.search.hosts.calm.selection import exposures
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState
from search_to_signal.search.hosts.released.trainer import (
    Count,
    bases_of,
    content,
    count_with,
    operator_named,
    operator_of,
    outcome_of,
    score_of,
    sent,
)
from search_to_signal.search.member import (
    Evaluated,
    Member,
    archive_gap,
    event_of,
    frontier,
    heuristic_record,
)

# How long prompt and completions of a round were, and which were cut: as far as it is known.

CountedBy = Literal["trainer", "model", "endpoint"]
Requests = Callable[[Sequence[str]], tuple[RequestRecord, ...]]
"""What an endpoint reported of these texts, one each; empty where it did not of all."""


@dataclass(frozen=True)
class Length:
    """Of one completion. ``ids`` are its tokens where the trainer shows them, ``request`` what was reported.

    Unknown counts are 0, and no completion counts as truncated.
    """

    prompt: int = 0
    completion: int = 0
    truncated: bool = False
    ids: tuple[int, ...] = ()
    request: RequestRecord | None = None


@dataclass(frozen=True)
class Lengths:
    """Of the completions of a round, and whose tokens they are; None where none were counted."""

    each: tuple[Length, ...]
    counted_by: CountedBy | None


def lengths_of(
    trainer: Any,
    chat: Any,
    texts: Sequence[str],
    named: Mapping[str, Any],
    requests: Requests,
    count: Count | None,
) -> Lengths:
    """By the trainer's tokenizer, else as the endpoint reports, else by ``count``, the model's own tokenizer.

    ``named`` are the further arguments of the reward call, among which TRL hands on ``completion_ids``.
    """
    tokenizer = getattr(trainer, "processing_class", None)
    if tokenizer is not None:
        return Lengths(_by_trainer(trainer, tokenizer, chat, texts, named.get("completion_ids")), "trainer")
    if reported := requests(texts):
        return Lengths(tuple(map(_by_endpoint, reported)), "endpoint")
    if count is not None:
        prompt = count(chat)
        return Lengths(tuple(Length(prompt, count(text)) for text in texts), "model")
    return Lengths((Length(),) * len(texts), None)


def _by_endpoint(request: RequestRecord) -> Length:
    cut = request.finish_reason == "length"
    return Length(request.prompt_tokens, request.completion_tokens, cut, request=request)


def _by_trainer(
    trainer: Any, tokenizer: Any, chat: Any, texts: Sequence[str], shown: Any
) -> tuple[Length, ...]:
    # The most tokens that the trainer samples, its own or its arguments' limit; None where there is none.
    places = (trainer, getattr(trainer, "args", None))
    limits = (getattr(place, "max_completion_length", None) for place in places)
    limit = next((limit for limit in limits if isinstance(limit, int)), None)
    count, end = count_with(tokenizer), getattr(tokenizer, "eos_token_id", None)
    prompt = count(chat)
    each = shown if shown is not None and len(shown) == len(texts) else [()] * len(texts)
    lengths = []
    for text, tokens in zip(texts, each, strict=True):
        ids = tuple(int(token) for token in tokens)
        length = len(ids) or count(text)
        # Without its tokens a text is as long as it is when it is tokenized again, and lacks its end token.
        cut = limit is not None and length >= limit and (not ids or ids[-1] != end)
        lengths.append(Length(prompt, length, cut, ids))
    return tuple(lengths)


Rescore = Callable[[str], float | None]


@dataclass(frozen=True)
class ReleasedRound:
    """One call of the released reward function; ``native`` is what it returned, ``seen`` what it made.

    ``chat`` holds the messages of the prompt. ``asked`` is the operator that the host's own prompt names,
    ``lengths`` is of each completion.
    """

    step: int
    chat: Any
    texts: tuple[str, ...]
    native: tuple[float, ...]
    seen: tuple[Any, ...]
    before: SearchState
    after: SearchState
    settings: SearchSettings
    asked: Operator | None
    lengths: tuple[Length, ...]

    @property
    def prompt(self) -> str:
        """What the last message says."""
        return content(self.chat)

    @cached_property
    def sent(self) -> str:
        """The whole prompt, as records hold it."""
        return sent(self.chat)

    @cached_property
    def bases(self) -> tuple[Member, ...]:
        """The archived members that the prompt shows."""
        return bases_of(self.prompt, self.before.archive)

    @cached_property
    def operator(self) -> Operator:
        """As the host names it on its prompt or on what it made, else as the prompt's words show it."""
        named = (operator_named(getattr(algo, "parent_prompt_type", None)) for algo in self.seen)
        return next((name for name in (self.asked, *named) if name), operator_of(self.prompt, self.bases))


def _evaluated(played: ReleasedRound, rescore: Rescore) -> Iterator[Evaluated]:
    for text, reward in zip(played.texts, played.native, strict=True):
        outcome, proposal = outcome_of(reward), parse(text)
        idea, code = (proposal.idea, proposal.code) if isinstance(proposal, Proposal) else ("", "")
        score = None
        if outcome is None:
            raise HostError(
                f"the released host gave {reward} to a completion, which is below every reward of a valid "
                "completion and is no failure reward of the paper: see s2s conformance --check rewards"
            )
        if outcome is Outcome.VALID:
            score = score_of(text, played.seen, played.after.archive, rescore)
            if score is None:
                raise HostError(
                    f"the released host gave {reward} to a completion whose performance is unknown: "
                    "its rewards differ from the paper's, or it ran a program that s2s did not see"
                )
            if not math.isfinite(score):  # never a valid score here (D17), whatever the host does with it
                outcome, score = Outcome.RUNTIME_FAILURE, None
        yield Evaluated(outcome, idea, code, score, program_sha256(code) if code else None)


def _admitted(played: ReleasedRound, results: Sequence[Evaluated]) -> dict[int, Member]:
    """What stands in the archive afterwards and did not before, by the completion that it came from.

    By its code, then by its score alone: a host may keep the code in another form. Raises HostError for a
    new member that no completion holds.
    """
    waiting, admitted = _new(played), dict[int, Member]()
    for by_code in (True, False):
        for index, result in enumerate(results):
            alike = (m for m in waiting if (m.id == result.program if by_code else m.score == result.score))
            if result.score is not None and index not in admitted and (member := next(alike, None)):
                admitted[index] = member
                waiting.remove(member)
    if waiting:
        raise HostError("calm_trainer.py: the archive has a new heuristic that is in no completion")
    return admitted


def _new(played: ReleasedRound) -> list[Member]:
    known = Counter((member.id, member.score) for member in played.before.archive)
    new = []
    for member in played.after.archive:
        if known[member.id, member.score]:
            known[member.id, member.score] -= 1
        else:
            new.append(member)
    return new


def round_records(
    played: ReleasedRound, problem: str, rescore: Rescore
) -> tuple[list[CompletionRecord], list[HeuristicRecord]]:
    """What a group leaves: its completions before any reward, and the heuristics that the archive took.

    Contexts are those before the group (D22). The heuristics of the first group begin with those that stood
    in the archive before it.
    """
    results = list(_evaluated(played, rescore))
    admitted = _admitted(played, results)
    first = [] if played.step else [replace(m, step=0, index=0) for m in played.before.archive]
    new = [replace(m, index=i, step=played.step, operator=played.operator) for i, m in admitted.items()]
    kept = [*first, *sorted(new, key=lambda member: member.index)]
    archive, bases = played.before.archive, played.bases
    reach = exposures(played.before, results, played.settings)
    prompt, shown = sha256_text(played.sent), {base.id for base in bases}
    records = [
        CompletionRecord(
            step=played.step,
            index=index,
            problem=problem,
            operator=played.operator,
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
            prompt_tokens=length.prompt,
            completion_tokens=length.completion,
            truncated=length.truncated,
            archive_event=event_of(result, index in admitted),
            components=None,
            reward=None,
            advantage=None,
        )
        for index, (text, result, length) in enumerate(
            zip(played.texts, results, played.lengths, strict=True)
        )
    ]
    return records, [heuristic_record(member) for member in kept]


def step_of(
    played: ReleasedRound,
    records: Sequence[CompletionRecord],
    last: SearchState | None,
    mapping: str,
    tokens: int,
) -> StepRecord:
    """The record of the group; what the released trainer keeps to itself (loss, adapter, cut) is absent.

    ``last`` is the state after the group before: a collapse shows in the members that went in between.
    ``tokens`` is how many were trained on.
    """
    here = Counter(member.id for member in played.before.archive)
    lost = last is not None and bool(Counter(member.id for member in last.archive) - here)
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
        training_tokens=tokens,
        adapter_sha256=None,
        prompt_tokens_cut=None,
    )
