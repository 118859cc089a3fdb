"""A run directory recomputed: its texts, its programs, its tokens, and the search that they make."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.errors import ConfigError, RecordError
from search_to_signal.generators.base import completion_text, request_seeds
from search_to_signal.hosts import find_host, host_code
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
from search_to_signal.verification.findings import Finding, same_bits
from search_to_signal.verification.recompute.completions import Text, text_findings
from search_to_signal.verification.recompute.programs import RunPrograms
from search_to_signal.verification.recompute.search import Played, Search
from search_to_signal.verification.recompute.tokens import Tokens, token_findings
from search_to_signal.verification.recompute.tools import Tools

NO_TOKENIZER = "token ids: its model's tokenizer is not here with the recorded checksums (--model)"
NO_TOKENS = "token ids: an endpoint shows none"


def run_config(manifest: Manifest) -> RunConfig:
    """A manifest's configuration; raises ConfigError for settings that this version cannot have."""
    try:
        return msgspec.convert(manifest.config, RunConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"its configuration is none of this version ({error}): use the version that made it"
        ) from error


def run_findings(run: Path, name: str, tools: Tools) -> Iterator[Finding]:
    """What is otherwise in a run directory; raises S2SError for what cannot be recomputed at all."""
    manifest = read_manifest(run)
    config = run_config(manifest)
    problem = find_problem(config.problem)
    host = find_host(config.host, host_setup(problem, config.search, config.host_settings))
    credit = (find_mapping(config.mapping), find_normalizer(config.normalizer)) if config.trained else None
    search = Search(config, problem, host, credit, tools.tokenizers.of(manifest.model_files))
    programs = tools.runner.programs(problem, config.split, config.evaluation)
    heuristics = list(read_records(run / HEURISTICS, HeuristicRecord))
    steps = list(read_records(run / STEPS, StepRecord))
    chosen = tools.chosen(name, len(steps))
    state, findings = _seed(search, heuristics, programs)
    yield from findings
    for number, played in enumerate(_groups(run, steps, heuristics)):
        tools.tally.update(groups=1, completions=len(played.group), executed=number in chosen)
        yield from text_findings(_texts(played), programs, number in chosen, config.reading)
        yield from _sampled(played, search)
        if state is not None:
            state, findings = search.follow(state, played)
            yield from findings
        tools.progress.update(name, number + 1, len(steps))
    if isinstance(host, HasDatabase) and state is not None and host.database(state) != read_database(run):
        yield Finding(DATABASE, "it is not the state that the search ends with")
    if config.generation.backend == "api":
        yield Finding("all", NO_TOKENS, False)
    elif search.tokens is None:
        yield Finding("all", NO_TOKENIZER, False)


def _seed(
    search: Search, heuristics: list[HeuristicRecord], programs: RunPrograms
) -> tuple[Any, list[Finding]]:
    """The state before the first group, as recorded, and what is otherwise in the seed heuristic."""
    (found,) = programs.evaluate([search.problem.seed.code])
    if not heuristics or found.score is None:
        raise RecordError("the seed heuristic is not recorded, or fails here")
    due = found.per_instance if wants_instance_scores(search.host) else ()
    seed = seed_member(search.problem.seed, heuristics[0].score, due)
    with host_code(search.config.host):
        state = begin(search.host, seed, given(heuristics))
    findings = []
    if not same_bits(heuristics[0].score, found.score):
        findings.append(Finding("seed heuristic", f"score {heuristics[0].score}, it gives {found.score}"))
    if heuristics[0] != heuristic_record(seed):
        findings.append(Finding("seed heuristic", "it is not the problem's"))
    if sum(heuristic.operator is None for heuristic in heuristics) != 1:
        findings.append(Finding("seed heuristic", "there is not exactly one"))
    return state, findings


def _groups(run: Path, steps: list[StepRecord], heuristics: list[HeuristicRecord]) -> Iterator[Played]:
    """The groups of a run in order; raises RecordError where its files do not hold the same ones."""
    brought: dict[int, list[HeuristicRecord]] = {}
    for heuristic in heuristics:
        if heuristic.operator is not None and heuristic.step != GIVEN:
            brought.setdefault(heuristic.step, []).append(heuristic)
    if strange := sorted(set(brought) - {step.step for step in steps}):
        raise RecordError(f"heuristics of step {strange[0]} are stored, which was not played")
    generations = read_records(run / GENERATIONS, GenerationRecord)
    for step, group, generation in zip_longest(steps, read_groups(run), generations):
        if step is None or group is None or generation is None:
            raise RecordError("steps, completions and generations do not hold the same number of groups")
        sizes = {len(group), len(generation.completions), len(generation.completion_ids)}
        sizes |= {len(generation.requests)} if generation.requests else set()
        if len(sizes) != 1 or {step.step, group[0].step, generation.step} != {step.step}:
            raise RecordError(f"step {step.step}: completions, texts and token ids are not of the same group")
        yield Played(group, step, generation, tuple(brought.get(step.step, ())))


def _texts(played: Played) -> list[Text]:
    pairs = zip(played.group, played.completions, strict=True)
    return [Text(f"step {r.step}, completion {r.index}", r, completion) for r, completion in pairs]


def _sampled(played: Played, search: Search) -> Iterator[Finding]:
    """What was read and sampled: token ids, or what an endpoint was asked."""
    where, generation, config = f"step {played.step.step}", played.generation, search.config
    if config.generation.backend == "api":
        seeds = request_seeds(derive_seed(config.seed, "sample", played.step.step), len(played.group))
        if tuple(request.seed for request in generation.requests) != seeds:
            yield Finding(where, "its requests were not asked with the seeds of the run")
        early = [request.finish_reason == "length" for request in generation.requests]
        if early != [record.truncated for record in played.group]:
            yield Finding(where, "truncated is not what its requests ended with")
        if generation.prompt_ids or any(generation.completion_ids):
            yield Finding(where, "an endpoint shows no token ids, and some are recorded")
    elif search.tokens is not None:
        truncated, cut = [record.truncated for record in played.group], played.step.prompt_tokens_cut
        yield from token_findings(where, generation, truncated, cut, search.tokens, config.generation)
        if config.trained and config.learner.credit != "both":
            yield from credit_findings(where, played, search.tokens, config)


def credit_findings(where: str, played: Played, tokens: Tokens, config: RunConfig) -> Iterator[Finding]:
    """Whether as many tokens carried the gradient as the texts' credited part has (D43)."""
    if played.step.training_tokens == 0 and played.step.loss is None:
        return
    decode, learner = completion_text(tokens.tokenizer), config.learner
    due = sum(
        sum(part_tokens(ids, learner.credit, decode, config.reading))
        for ids, record in zip(played.generation.completion_ids, played.group, strict=True)
        if not (learner.truncated == "exclude" and record.truncated)
    )
    if played.step.training_tokens != due:
        found = played.step.training_tokens
        yield Finding(where, f"training_tokens is {found}, {learner.credit} has {due} tokens in its texts")
