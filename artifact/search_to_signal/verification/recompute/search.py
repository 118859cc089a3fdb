"""The search of a recorded run, drawn and moved on again from its seed and its records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

import msgspec

from search_to_signal.errors import S2SError
from search_to_signal.generators.base import Completion, Generation
from search_to_signal.hosts import host_code
from search_to_signal.hosts.credit import assign_credit
from search_to_signal.loop.group import EvaluatedCompletion, completion_records, step_record
from search_to_signal.normalizer import Normalizer
from search_to_signal.problems.base import Problem
from search_to_signal.profiles.run_config import RunConfig
from search_to_signal.programs.parsing import Proposal, parse
from search_to_signal.records.reader import Group
from search_to_signal.records.schema import (
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    IdeaEnd,
    StepRecord,
)
from search_to_signal.rewards import RewardMapping
from search_to_signal.search.host import Host, Request, exposures_of, update_search
from search_to_signal.search.member import heuristic_record
from search_to_signal.search.round import evaluated
from search_to_signal.seeding import stream
from search_to_signal.verification.findings import Finding, same_bits
from search_to_signal.verification.recompute.tokens import Tokens, prompt_differs

# Looked at text by text, where chance and time limits can be told apart.
_ELSEWHERE = ("evaluation",)
# Only the learner can tell.
_LEARNED = ("loss", "kl", "grad_norm", "training_tokens", "adapter_sha256", "not_finite")
# A sum of a few products, which some processors round otherwise.
_EXPOSURE = 1e-12


@dataclass(frozen=True)
class Played:
    """One recorded group, whole: its completions, step, texts, and the heuristics that it brought."""

    group: Group
    step: StepRecord
    generation: GenerationRecord
    heuristics: tuple[HeuristicRecord, ...]

    @property
    def completions(self) -> tuple[Completion, ...]:
        """Its completions as the generator gave them."""
        told, requests = self.generation, self.generation.requests or (None,) * len(self.group)
        parts = zip(told.completion_ids, told.completions, self.group, requests, strict=True)
        return tuple(Completion(ids, text, record.truncated, asked) for ids, text, record, asked in parts)


@dataclass(frozen=True)
class Search:
    """What decides a run's search; ``credit`` is None where nothing was learned."""

    config: RunConfig
    problem: Problem
    host: Host
    credit: tuple[RewardMapping, Normalizer] | None
    tokens: Tokens | None

    def follow(self, state: Any, played: Played) -> tuple[Any, list[Finding]]:
        """Move on by a group as recorded; what is otherwise, and no state where nothing can follow."""
        where = f"step {played.step.step}"
        try:
            rng = stream(self.config.seed, "search", played.step.step)
            with host_code(self.config.host):
                request = self.host.propose(state, rng)
            findings = list(self._asked(where, request, played))
            if not findings:
                return self._moved(where, request, played)
        except S2SError as error:
            findings = [Finding(where, str(error))]
        return None, [*findings, Finding(where, "the search cannot be followed from here on")]

    def _asked(self, where: str, request: Request, played: Played) -> Iterator[Finding]:
        step, parents = played.step, tuple(parent.id for parent in request.parents)
        told = (step.operator, step.collapsed, played.group[0].parents)
        if told != (request.operator, request.collapsed, parents):
            yield Finding(where, "operator, collapse or parents are not those that its seed draws")
        elif prompt_differs(played.generation.prompt, request.prompt, self.config.generation, self.tokens):
            yield Finding(where, "its prompt is not the one that the search asks there")

    def _moved(self, where: str, request: Request, played: Played) -> tuple[Any, list[Finding]]:
        config, number = self.config, played.step.step
        pairs = list(zip(played.group, played.generation.completions, strict=True))
        results = [evaluated(record, text, config.reading) for record, text in pairs]
        with host_code(config.host):
            transition = update_search(self.host, request, results, number)
            reach = exposures_of(self.host, request, results)
        generation = _generation(played)
        both = zip(played.group, generation.completions, strict=True)
        judged = [_judged(record, completion, config.reading) for record, completion in both]
        records = completion_records(
            request, number, config.problem, generation, judged, transition.events, reach
        )
        if self.credit is not None:
            records = assign_credit(records, *self.credit)
        step = step_record(request, transition, generation, records, config, None)
        admitted = [heuristic_record(member) for member in transition.admitted]
        return transition.state, [
            *_completions(where, played.group, records),
            *_step(where, played.step, step, records, None if self.credit is None else config.mapping),
            *_admitted(where, played.heuristics, admitted),
        ]


def _generation(played: Played) -> Generation:
    told, cut = played.generation, played.step.prompt_tokens_cut or 0
    return Generation(told.prompt, told.prompt_ids, played.completions, cut)


def _judged(record: CompletionRecord, completion: Completion, idea_end: IdeaEnd) -> EvaluatedCompletion:
    proposal = parse(completion.text, idea_end)
    found = proposal if isinstance(proposal, Proposal) else None
    scores = () if record.instance_scores is msgspec.UNSET else record.instance_scores
    return EvaluatedCompletion(
        completion, record.outcome, record.detail, record.score, found, record.program_sha256, None, scores
    )


def _completions(
    where: str, recorded: Sequence[CompletionRecord], found: Sequence[CompletionRecord]
) -> Iterator[Finding]:
    for one, other in zip(recorded, found, strict=True):
        yield from _otherwise(f"{where}, completion {one.index}", one, other, _ELSEWHERE)


def _step(
    where: str,
    recorded: StepRecord,
    found: StepRecord,
    records: Sequence[CompletionRecord],
    mapping: str | None,
) -> Iterator[Finding]:
    if mapping is None:
        yield from _otherwise(where, recorded, found, ("prompt_tokens_cut",))
        return
    zero = all(record.advantage == 0 for record in records)
    credit = msgspec.structs.replace(found, mapping=mapping, zero_advantage=zero)
    yield from _otherwise(where, recorded, credit, ("prompt_tokens_cut", *_LEARNED))


def _admitted(
    where: str, recorded: Sequence[HeuristicRecord], found: Sequence[HeuristicRecord]
) -> Iterator[Finding]:
    if len(recorded) != len(found):
        yield Finding(where, f"{len(recorded)} heuristics are stored, its completions give {len(found)}")
        return
    for one, other in zip(recorded, found, strict=True):
        yield from _otherwise(f"{where}, heuristic of completion {other.index}", one, other, ())


def _otherwise(
    where: str, recorded: msgspec.Struct, found: msgspec.Struct, leave_out: Sequence[str]
) -> Iterator[Finding]:
    for name in recorded.__struct_fields__:
        one, other = getattr(recorded, name), getattr(found, name)
        close = name == "exposure" and None not in (one, other) and isclose(one, other, abs_tol=_EXPOSURE)
        if name not in leave_out and not same_bits(one, other) and not close:
            yield Finding(where, f"{name} is {one!r}, the records and the seed give {other!r}")
