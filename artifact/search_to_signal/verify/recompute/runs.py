"""A run directory, recomputed: texts, programs, token ids and search."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import isclose
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.errors import ConfigError, RecordError, S2SError
from search_to_signal.base.seeding import derive_seed, stream
from search_to_signal.credit import RewardMapping, find_mapping
from search_to_signal.credit.assignment import assign_credit
from search_to_signal.credit.normalizers import Normalizer, find_normalizer
from search_to_signal.models.base import Completion, Generation, completion_text, request_seeds
from search_to_signal.problems import find_problem
from search_to_signal.problems.base import Problem
from search_to_signal.records.manifest import DATABASE, Manifest, read_database, read_manifest
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, STEPS, Group, read_groups, read_records
from search_to_signal.records.schema import (
    GIVEN,
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    IdeaEnd,
    StepRecord,
    given,
)
from search_to_signal.run.config import RunConfig, host_setup
from search_to_signal.run.group import EvaluatedCompletion, completion_records, step_record
from search_to_signal.sandbox.programs import Proposal, parse, part_tokens
from search_to_signal.search.host import (
    HasDatabase,
    Host,
    Request,
    begin,
    evaluated,
    exposures_of,
    update_search,
    wants_instance_scores,
)
from search_to_signal.search.hosts import find_host, host_errors
from search_to_signal.search.member import heuristic_record, seed_member
from search_to_signal.verify.findings import Finding
from search_to_signal.verify.recompute.completions import RecordedText, text_findings
from search_to_signal.verify.recompute.programs import RunPrograms, same_bits
from search_to_signal.verify.recompute.tokens import ModelTokenizer, Tools, prompt_differs, token_findings

# The search of a recorded run, replayed from its seed and its records.

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


NO_TOKENIZER = "token ids: its model's tokenizer is not here with the recorded checksums (--model)"
NO_TOKENS = "token ids: an endpoint shows none"


def run_config(manifest: Manifest) -> RunConfig:
    """Return a manifest's configuration; raises ConfigError for settings of another version."""
    try:
        return msgspec.convert(manifest.config, RunConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"its configuration is none of this version ({error}): use the version that made it"
        ) from error


def run_findings(run: Path, name: str, tools: Tools) -> Iterator[Finding]:
    """Yield the differences of a run directory; raises S2SError if it cannot be recomputed."""
    manifest = read_manifest(run)
    config = run_config(manifest)
    problem = find_problem(config.problem)
    host = find_host(config.host, host_setup(problem, config.search, config.host_settings))
    credit = (find_mapping(config.mapping), find_normalizer(config.normalizer)) if config.trained else None
    search = SearchReplay(config, problem, host, credit, tools.tokenizers.of(manifest.model_files))
    programs = tools.runner.programs(problem, config.split, config.evaluation)
    heuristics = list(read_records(run / HEURISTICS, HeuristicRecord))
    steps = list(read_records(run / STEPS, StepRecord))
    chosen = tools.chosen(name, len(steps))
    state, findings = _start(search, heuristics, programs)
    yield from findings
    for number, recorded in enumerate(_groups(run, steps, heuristics)):
        tools.tally.update(groups=1, completions=len(recorded.group), executed=number in chosen)
        yield from text_findings(_texts(recorded), programs, number in chosen, config.reading)
        yield from _sampling_findings(recorded, search)
        if state is not None:
            state, findings = search.replay_group(state, recorded)
            yield from findings
        tools.progress.update(name, number + 1, len(steps))
    if isinstance(host, HasDatabase) and state is not None and host.database(state) != read_database(run):
        yield Finding(DATABASE, "it is not the state that the search ends with")
    if config.generation.backend == "api":
        yield Finding("all", NO_TOKENS, False)
    elif search.tokenizer is None:
        yield Finding("all", NO_TOKENIZER, False)


def _start(
    search: SearchReplay, heuristics: list[HeuristicRecord], programs: RunPrograms
) -> tuple[Any, list[Finding]]:
    """The recorded state before the first group, and the differences of the seed heuristic."""
    (actual,) = programs.evaluate([search.problem.seed.code])
    if not heuristics or actual.score is None:
        raise RecordError("the seed heuristic is not recorded, or fails here")
    instance_scores = actual.per_instance if wants_instance_scores(search.host) else ()
    seed = seed_member(search.problem.seed, heuristics[0].score, instance_scores)
    with host_errors(search.config.host):
        state = begin(search.host, seed, given(heuristics))
    findings = []
    if not same_bits(heuristics[0].score, actual.score):
        findings.append(Finding("seed heuristic", f"score {heuristics[0].score}, it gives {actual.score}"))
    if heuristics[0] != heuristic_record(seed):
        findings.append(Finding("seed heuristic", "it is not the problem's"))
    if sum(heuristic.operator is None for heuristic in heuristics) != 1:
        findings.append(Finding("seed heuristic", "there is not exactly one"))
    return state, findings


def _groups(run: Path, steps: list[StepRecord], heuristics: list[HeuristicRecord]) -> Iterator[RecordedGroup]:
    """The groups of a run in order; raises RecordError where its files do not hold the same ones."""
    admitted: dict[int, list[HeuristicRecord]] = {}
    for heuristic in heuristics:
        if heuristic.operator is not None and heuristic.step != GIVEN:
            admitted.setdefault(heuristic.step, []).append(heuristic)
    if unknown := sorted(set(admitted) - {step.step for step in steps}):
        raise RecordError(f"heuristics of step {unknown[0]} are stored, which was not played")
    generations = read_records(run / GENERATIONS, GenerationRecord)
    for step, group, generation in zip_longest(steps, read_groups(run), generations):
        if step is None or group is None or generation is None:
            raise RecordError("steps, completions and generations do not hold the same number of groups")
        sizes = {len(group), len(generation.completions), len(generation.completion_ids)}
        sizes |= {len(generation.requests)} if generation.requests else set()
        if len(sizes) != 1 or {step.step, group[0].step, generation.step} != {step.step}:
            raise RecordError(f"step {step.step}: completions, texts and token ids are not of the same group")
        yield RecordedGroup(group, step, generation, tuple(admitted.get(step.step, ())))


def _texts(recorded: RecordedGroup) -> list[RecordedText]:
    pairs = zip(recorded.group, recorded.completions, strict=True)
    return [RecordedText(f"step {r.step}, completion {r.index}", r, completion) for r, completion in pairs]


def _sampling_findings(recorded: RecordedGroup, search: SearchReplay) -> Iterator[Finding]:
    """Differences of a group's token ids, or of its requests to an endpoint."""
    where, generation, config = f"step {recorded.step.step}", recorded.generation, search.config
    truncated = [record.truncated for record in recorded.group]
    if config.generation.backend == "api":
        seeds = request_seeds(derive_seed(config.seed, "sample", recorded.step.step), len(recorded.group))
        if tuple(request.seed for request in generation.requests) != seeds:
            yield Finding(where, "its requests were not asked with the seeds of the run")
        if truncated != [request.finish_reason == "length" for request in generation.requests]:
            yield Finding(where, "truncated is not what its requests ended with")
        if generation.prompt_ids or any(generation.completion_ids):
            yield Finding(where, "an endpoint shows no token ids, and some are recorded")
    elif search.tokenizer is not None:
        cut = recorded.step.prompt_tokens_cut
        yield from token_findings(where, generation, truncated, cut, search.tokenizer, config.generation)
        if config.trained and config.learner.credit != "both":
            yield from credited_token_findings(where, recorded, search.tokenizer, config)


def credited_token_findings(
    where: str, recorded: RecordedGroup, tokenizer: ModelTokenizer, config: RunConfig
) -> Iterator[Finding]:
    """Yield a difference where the gradient had another number of tokens than the credited part (D43)."""
    tokens = recorded.step.training_tokens
    if tokens == 0 and recorded.step.loss is None:
        return
    decode, learner = completion_text(tokenizer.tokenizer), config.learner
    expected = sum(
        sum(part_tokens(ids, learner.credit, decode, config.reading))
        for ids, record in zip(recorded.generation.completion_ids, recorded.group, strict=True)
        if not (learner.truncated == "exclude" and record.truncated)
    )
    if tokens != expected:
        text = f"training_tokens is {tokens}, {learner.credit} has {expected} tokens in its texts"
        yield Finding(where, text)
