"""Consistency of one run: its records with each other, with its manifest, and with its reward mapping."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec import UNSET, convert

from search_to_signal.provenance.adapters import adapter_problems
from search_to_signal.provenance.unshipped import unshipped
from search_to_signal.records.abilities import ability_problems, operators_of_host
from search_to_signal.records.conditions import FROZEN, Condition
from search_to_signal.records.manifest import Manifest, RunFacts
from search_to_signal.records.population import given, population_sha256
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, STEPS, Group, read_groups, read_records
from search_to_signal.records.schema import (
    ArchiveEvent,
    GenerationRecord,
    HeuristicRecord,
    Outcome,
    StepRecord,
)
from search_to_signal.rewards import own_name
from search_to_signal.verification.consistency.archive import (
    ArchiveReplay,
    archive_replay,
    database_problems,
)
from search_to_signal.verification.consistency.completion_texts import (
    ParsedTexts,
    TextReplay,
    prompt_problems,
    store_problems,
)
from search_to_signal.verification.consistency.instance_scores import (
    heuristic_problems,
    instance_problems,
    instances_of,
)
from search_to_signal.verification.consistency.manifests import manifest_problems
from search_to_signal.verification.consistency.rewards_and_advantages import credit_problems, missing_code
from search_to_signal.verification.consistency.training_inputs import batch_problems, pair_problems
from search_to_signal.verification.findings import findings_of

_GROUPS_PER_CALL = 256
_CONFIGURATION = "the manifest's configuration"


def record_problems(directory: Path, manifest: Manifest, parsed: ParsedTexts | None = None) -> list[str]:
    """Return the contradictions within a run's records, one line each; raises nothing for damaged files.

    An unreadable file or value is the last line. ``parsed`` carries parsed texts from one run to the next,
    since equal programs have equal scores (D20).
    """
    problems = _record_problems(directory, manifest, parsed or ParsedTexts())
    return [finding.line for finding in findings_of("", problems, _CONFIGURATION)]


def file_problems(directory: Path, manifest: Manifest) -> list[str]:
    """Return the contradictions between a run's manifest, configuration, timings and adapter as lines."""
    problems = _file_problems(directory, manifest)
    return [finding.line for finding in findings_of("", problems, _CONFIGURATION)]


def _record_problems(directory: Path, manifest: Manifest, parsed: ParsedTexts) -> Iterator[str]:
    config = manifest.config
    steps = list(read_records(directory / STEPS, StepRecord))
    yield from _frontier_problems(steps)
    heuristics = list(read_records(directory / HEURISTICS, HeuristicRecord))
    if not manifest.of_host.own_loop:
        yield from store_problems(heuristics, config, parsed)
    archive = archive_replay(heuristics, config.get("search", {}), manifest.of_host)
    if not archive.seeds:
        yield f"{HEURISTICS} has no seed heuristic"
        return
    yield from _population_problems(heuristics, config)
    yield from _operator_problems(heuristics, steps, manifest.host)
    wants_scores = manifest.of_host.instance_scores is True
    yield from heuristic_problems(heuristics, wants_scores)
    instances = instances_of(heuristics) if wants_scores else 0
    stored = {(h.step, h.index): h for h in heuristics if h.operator is not None}
    texts = TextReplay(config, parsed, stored, manifest.of_host.exposures)
    yield from _group_problems(directory, manifest, steps, texts, archive, instances)
    yield from archive.store_problems(heuristics)
    yield from pair_problems(directory, manifest)
    if not manifest.of_host.own_loop:
        yield from batch_problems(directory, manifest)
    yield from database_problems(directory, manifest)
    if len(steps) != manifest.facts.groups:
        yield f"{len(steps)} steps are recorded, the configuration asks for {manifest.facts.groups}"


def _frontier_problems(steps: list[StepRecord]) -> Iterator[str]:
    for previous, step in pairwise(steps):
        # A collapse keeps the best member, and so the frontier.
        if step.frontier_before != previous.frontier_after:
            yield f"step {step.step}: frontier does not continue from step {previous.step}"


def _population_problems(heuristics: list[HeuristicRecord], config: dict[str, Any]) -> Iterator[str]:
    """Whether a run began with the population of its configuration, and with none where it names none."""
    population = given(heuristics)
    expected = (config.get("parent") or {}).get("archive_sha256")
    if expected is None and population:
        yield f"{HEURISTICS} begins with a population, of which the configuration says nothing"
    if expected is not None and population_sha256(population) != expected:
        yield f"{HEURISTICS} begins with another population than the configuration says"
    if tuple(heuristics[1 : 1 + len(population)]) != population:
        yield f"{HEURISTICS} does not hold the given population directly behind the seed"


def _group_problems(
    directory: Path,
    manifest: Manifest,
    steps: list[StepRecord],
    texts: TextReplay,
    archive: ArchiveReplay,
    instances: int,
) -> Iterator[str]:
    facts, pending = manifest.facts, list[Group]()
    missing = list(missing_code(facts))
    yield from missing
    recorded = read_groups(directory), steps, read_records(directory / GENERATIONS, GenerationRecord)
    for number, (group, step, generation) in enumerate(zip_longest(*recorded)):
        if group is None or step is None or group[0].step != step.step or step.step != number:
            yield "completions.jsonl and steps.jsonl do not hold the same steps"
            return
        if generation is None:
            yield f"{GENERATIONS} ends before step {step.step}"
            return
        if len(group) != facts.group_size:
            yield f"step {step.step}: {len(group)} completions in the group"
        yield from _outcome_problems(group)
        yield from _step_problems(group, step)
        yield from prompt_problems(group, step, manifest.config["generation"])
        yield from archive.problems(group, step)
        yield from instance_problems(group, instances)
        if not missing:
            pending.append(group)
        if len(pending) == _GROUPS_PER_CALL:
            yield from credit_problems(pending, facts)
            pending.clear()
        if not manifest.of_host.own_loop:
            yield from texts.problems(group, step, generation)
            yield from _learning_problems(group, step, facts, manifest.of_rule.all_told)
    yield from credit_problems(pending, facts)


def _outcome_problems(group: Group) -> Iterator[str]:
    for record in group:
        where = f"step {record.step}, completion {record.index}"
        if (record.score is not None) != (record.outcome is Outcome.VALID):
            yield f"{where}: outcome {record.outcome.value} with score {record.score}"
        if (record.archive_event is ArchiveEvent.INVALID) != (record.score is None):
            yield f"{where}: archive event {record.archive_event.value} with score {record.score}"


def _step_problems(group: Group, step: StepRecord) -> Iterator[str]:
    scores = [r.score for r in group if r.score is not None and r.archive_event is ArchiveEvent.ADMITTED]
    before = [] if step.frontier_before is None else [step.frontier_before]
    expected = {
        "valid": sum(record.score is not None for record in group),
        "admitted": len(scores),
        "frontier_before": group[0].frontier,
        "frontier_after": max([*scores, *before], default=None),
        "operator": group[0].operator,
        "prompt_sha256": group[0].prompt_sha256,
    }
    for name, value in expected.items():
        if getattr(step, name) != value:
            yield f"step {step.step}: {name} is {getattr(step, name)}, its completions say {value}"


def _learning_problems(
    group: Group, step: StepRecord, facts: RunFacts, reports_all_numbers: bool
) -> Iterator[str]:
    where, mapping, trained = f"step {step.step}", facts.mapping, facts.trained
    if step.mapping != (mapping if trained else None):
        yield f"{where}: mapping is {step.mapping}, that of the run's condition is {mapping}"
    zero = all(record.advantage == 0 for record in group) if trained else None
    if step.zero_advantage is not zero:
        yield f"{where}: zero_advantage is {step.zero_advantage}, its completions say {zero}"
    numbers = (step.loss, step.kl, step.grad_norm)
    # A learning rule may leave out some of them; those that it reports have to be finite.
    reported = numbers if reports_all_numbers else [n for n in numbers if n is not None]
    if trained and step.training_tokens and not all(n is not None and isfinite(n) for n in reported):
        yield f"{where}: a trained step has no finite loss, KL or gradient norm"
    if not (trained and step.training_tokens) and (numbers != (None,) * 3 or step.training_tokens):
        yield f"{where}: nothing was trained, and there is a loss, KL, gradient norm or token"
    if step.grad_norm is not None and step.grad_norm < 0:
        yield f"{where}: grad_norm is negative"


def _operator_problems(
    heuristics: Sequence[HeuristicRecord], steps: Sequence[StepRecord], host: str
) -> Iterator[str]:
    """Operators that the run's host does not know; steps are compared with their completions elsewhere."""
    known = operators_of_host(host)
    if known is None:
        return
    for step in steps:
        if step.operator not in known:
            yield f"step {step.step}: host {host} has no operator {step.operator}"
    for heuristic in heuristics:
        if heuristic.operator is not None and heuristic.operator not in known:
            yield f"{HEURISTICS}: host {host} has no operator {heuristic.operator}"


def _file_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    if convert(manifest.config, RunFacts).host != manifest.host:
        yield f"host is {manifest.host}, the configuration is not one of its runs"
    rule, settings = manifest.facts.learning_rule, manifest.rule_settings
    yield from ability_problems(manifest.host, manifest.of_host, rule, manifest.of_rule, settings)
    condition, normalizer = manifest.facts.condition, manifest.facts.normalizer
    if Condition.parse(condition).normalizer_or(normalizer) != normalizer:
        yield f"normalizer is {normalizer}, condition {condition} names another one"
    if manifest.of_host.own_loop:
        return
    yield from manifest_problems(directory, manifest)
    steps = list(read_records(directory / STEPS, StepRecord))
    yield from adapter_problems(directory, manifest, steps, manifest.facts.trained, unshipped(directory))
    recorded_name, mapping = manifest.mapping_name, manifest.facts.mapping
    if recorded_name is not UNSET and recorded_name != (None if mapping == FROZEN else own_name(mapping)):
        yield f"mapping_name is {recorded_name!r}, which {mapping} does not call itself"
