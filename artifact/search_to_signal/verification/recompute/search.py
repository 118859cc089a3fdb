"""The search of a recorded run, replayed from its seed and its records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

import msgspec

from search_to_signal.errors import S2SError
from search_to_signal.generators.base import Completion, Generation
from search_to_signal.hosts import host_errors
from search_to_signal.hosts.rewards_and_advantages import assign_credit
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
from search_to_signal.verification.findings import Finding
from search_to_signal.verification.recompute.endings import same_bits
from search_to_signal.verification.recompute.tokens import ModelTokenizer, prompt_differs

# Compared text by text, which distinguishes chance from time limits.
_COMPARED_BY_TEXT = ("evaluation",)
# Results of the learner, which is not executed.
_LEARNER_FIELDS = ("loss", "kl", "grad_norm", "training_tokens", "adapter_sha256", "not_finite")
# Exposures are sums of a few products, whose last bits depend on the processor.
_EXPOSURE_TOLERANCE = 1e-12


@dataclass(frozen=True)
class RecordedGroup:
    """One recorded group: its completions, step and texts, and the heuristics that it admitted."""

    group: Group
    step: StepRecord
    generation: GenerationRecord
    heuristics: tuple[HeuristicRecord, ...]

    @property
    def completions(self) -> tuple[Completion, ...]:
        """The completions as the generator returned them."""
        generation = self.generation
        requests = generation.requests or (None,) * len(self.group)
        parts = zip(generation.completion_ids, generation.completions, self.group, requests, strict=True)
        return tuple(Completion(ids, text, record.truncated, request) for ids, text, record, request in parts)


@dataclass(frozen=True)
class SearchReplay:
    """The parts that determine a run's search; ``credit`` is None for a frozen run."""

    config: RunConfig
    problem: Problem
    host: Host
    credit: tuple[RewardMapping, Normalizer] | None
    tokenizer: ModelTokenizer | None

    def replay_group(self, state: Any, recorded: RecordedGroup) -> tuple[Any, list[Finding]]:
        """Return the state after a recorded group, and the group's differences.

        The state is None where the host proposes another prompt, since no later group can be compared.
        """
        where = f"step {recorded.step.step}"
        try:
            rng = stream(self.config.seed, "search", recorded.step.step)
            with host_errors(self.config.host):
                request = self.host.propose(state, rng)
            findings = list(self._compare_request(where, request, recorded))
            if not findings:
                return self._update(where, request, recorded)
        except S2SError as error:
            findings = [Finding(where, str(error))]
        return None, [*findings, Finding(where, "the search cannot be followed from here on")]

    def _compare_request(self, where: str, request: Request, recorded: RecordedGroup) -> Iterator[Finding]:
        step, parents = recorded.step, tuple(parent.id for parent in request.parents)
        prompt, generation = recorded.generation.prompt, self.config.generation
        drawn = (step.operator, step.collapsed, recorded.group[0].parents)
        if drawn != (request.operator, request.collapsed, parents):
            yield Finding(where, "operator, collapse or parents are not those that its seed draws")
        elif prompt_differs(prompt, request.prompt, generation, self.tokenizer):
            yield Finding(where, "its prompt is not the one that the search asks there")

    def _update(self, where: str, request: Request, recorded: RecordedGroup) -> tuple[Any, list[Finding]]:
        config, number = self.config, recorded.step.step
        texts = zip(recorded.group, recorded.generation.completions, strict=True)
        results = [evaluated(record, text, config.reading) for record, text in texts]
        with host_errors(config.host):
            transition = update_search(self.host, request, results, number)
            exposures = exposures_of(self.host, request, results)
        generation = _generation(recorded)
        completions = zip(recorded.group, generation.completions, strict=True)
        evaluations = [_evaluated(record, completion, config.reading) for record, completion in completions]
        records = completion_records(
            request, number, config.problem, generation, evaluations, transition.events, exposures
        )
        if self.credit is not None:
            records = assign_credit(records, *self.credit)
        step = step_record(request, transition, generation, records, config, None)
        admitted = [heuristic_record(member) for member in transition.admitted]
        return transition.state, [
            *_compare_completions(where, recorded.group, records),
            *_compare_step(
                where, recorded.step, step, records, None if self.credit is None else config.mapping
            ),
            *_compare_heuristics(where, recorded.heuristics, admitted),
        ]


def _generation(recorded: RecordedGroup) -> Generation:
    generation, cut = recorded.generation, recorded.step.prompt_tokens_cut or 0
    return Generation(generation.prompt, generation.prompt_ids, recorded.completions, cut)


def _evaluated(record: CompletionRecord, completion: Completion, idea_end: IdeaEnd) -> EvaluatedCompletion:
    parsing = parse(completion.text, idea_end)
    proposal = parsing if isinstance(parsing, Proposal) else None
    scores = () if record.instance_scores is msgspec.UNSET else record.instance_scores
    return EvaluatedCompletion(
        completion, record.outcome, record.detail, record.score, proposal, record.program_sha256, None, scores
    )


def _compare_completions(
    where: str, recorded: Sequence[CompletionRecord], actual: Sequence[CompletionRecord]
) -> Iterator[Finding]:
    for record, expected in zip(recorded, actual, strict=True):
        yield from _compare_fields(f"{where}, completion {record.index}", record, expected, _COMPARED_BY_TEXT)


def _compare_step(
    where: str,
    recorded: StepRecord,
    actual: StepRecord,
    records: Sequence[CompletionRecord],
    mapping: str | None,
) -> Iterator[Finding]:
    if mapping is None:
        yield from _compare_fields(where, recorded, actual, ("prompt_tokens_cut",))
        return
    zero = all(record.advantage == 0 for record in records)
    credited = msgspec.structs.replace(actual, mapping=mapping, zero_advantage=zero)
    yield from _compare_fields(where, recorded, credited, ("prompt_tokens_cut", *_LEARNER_FIELDS))


def _compare_heuristics(
    where: str, recorded: Sequence[HeuristicRecord], actual: Sequence[HeuristicRecord]
) -> Iterator[Finding]:
    if len(recorded) != len(actual):
        yield Finding(where, f"{len(recorded)} heuristics are stored, its completions give {len(actual)}")
        return
    for record, expected in zip(recorded, actual, strict=True):
        place = f"{where}, heuristic of completion {expected.index}"
        yield from _compare_fields(place, record, expected, ())


def _compare_fields(
    where: str, recorded: msgspec.Struct, actual: msgspec.Struct, left_out: Sequence[str]
) -> Iterator[Finding]:
    for name in recorded.__struct_fields__:
        first, second = getattr(recorded, name), getattr(actual, name)
        is_exposure = name == "exposure" and None not in (first, second)
        close = is_exposure and isclose(first, second, abs_tol=_EXPOSURE_TOLERANCE)
        if name not in left_out and not same_bits(first, second) and not close:
            yield Finding(where, f"{name} is {first!r}, the records and the seed give {second!r}")
