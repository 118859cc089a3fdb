"""A run directory, recomputed: texts, programs, token ids and search."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.errors import ConfigError, RecordError
from search_to_signal.generators.base import completion_text, request_seeds
from search_to_signal.hosts import find_host, host_errors
from search_to_signal.normalizer import find_normalizer
from search_to_signal.problems import find_problem
from search_to_signal.profiles.run_config import RunConfig, host_setup
from search_to_signal.programs.parts import part_tokens
from search_to_signal.records.database import DATABASE, read_database
from search_to_signal.records.manifest import Manifest, read_manifest
from search_to_signal.records.population import GIVEN, given
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, STEPS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord, HeuristicRecord, StepRecord
from search_to_signal.rewards import find_mapping
from search_to_signal.search.host import HasDatabase, begin, wants_instance_scores
from search_to_signal.search.member import heuristic_record, seed_member
from search_to_signal.seeding import derive_seed
from search_to_signal.verification.findings import Finding
from search_to_signal.verification.recompute.completions import RecordedText, text_findings
from search_to_signal.verification.recompute.endings import same_bits
from search_to_signal.verification.recompute.programs import RunPrograms
from search_to_signal.verification.recompute.search import RecordedGroup, SearchReplay
from search_to_signal.verification.recompute.tokens import ModelTokenizer, token_findings
from search_to_signal.verification.recompute.tools import Tools

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
