"""Do the records of a run agree with each other, and with the mapping that the run claims?"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec import UNSET, convert

from search_to_signal.errors import ConfigError, IllFormedGroupError, MappingError, S2SError, reason
from search_to_signal.normalizer import advantages_by_group, find_normalizer
from search_to_signal.provenance.adapters import adapter_problems
from search_to_signal.records.abilities import ability_problems, operators_of_host
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import Manifest, RunFacts, normalizer_of
from search_to_signal.records.population import given, population_sha256
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, STEPS, Group, read_groups, read_records
from search_to_signal.records.schema import (
    ArchiveEvent,
    GenerationRecord,
    HeuristicRecord,
    Outcome,
    StepRecord,
)
from search_to_signal.rewards import find_mapping, own_name, rewards_of
from search_to_signal.verification.consistency.archive import ArchiveReplay, archive_replay
from search_to_signal.verification.consistency.batches import batch_problems
from search_to_signal.verification.consistency.completion_texts import ParsedTexts, TextReplay, store_problems
from search_to_signal.verification.consistency.database import database_problems
from search_to_signal.verification.consistency.instance_scores import (
    heuristic_problems,
    instance_problems,
    instances_of,
)
from search_to_signal.verification.consistency.manifests import manifest_problems
from search_to_signal.verification.consistency.pairs import pair_problems
from search_to_signal.verification.consistency.prompt_lengths import prompt_problems
from search_to_signal.verification.consistency.rounding import agree

# Groups that are credited in one call.
_TOGETHER = 256


def _outcome_problems(group: Group) -> Iterator[str]:
    for record in group:
        if (record.score is not None) != (record.outcome is Outcome.VALID):
            told = f"outcome {record.outcome.value} with score {record.score}"
            yield f"step {record.step}, completion {record.index}: {told}"
        if (record.archive_event is ArchiveEvent.INVALID) != (record.score is None):
            told = f"archive event {record.archive_event.value} with score {record.score}"
            yield f"step {record.step}, completion {record.index}: {told}"


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


def _missing_code(facts: RunFacts) -> Iterator[str]:
    """Why a trained run's mapping or normalizer is not to be had: one line, not one per group."""
    try:
        if facts.trained:
            find_mapping(facts.mapping)
            find_normalizer(facts.normalizer)
    except ConfigError as error:
        yield str(error)


def _credit_problems(groups: Sequence[Group], facts: RunFacts) -> Iterator[str]:
    if not groups:
        return
    try:
        told = list(_credited_otherwise(groups, facts))
    except (IllFormedGroupError, MappingError) as error:
        told = [f"step {groups[0][0].step}: {error}"]
    if told and len(groups) > 1:
        # A run credits each group alone, and so does what is said against one.
        for group in groups:
            yield from _credit_problems([group], facts)
    else:
        yield from told


def _credited_otherwise(groups: Sequence[Group], facts: RunFacts) -> Iterator[str]:
    """What mapping and normalizer give otherwise than recorded; all groups in one call, which is faster."""
    if not facts.trained:
        for group in groups:
            if any(record.reward is not None or record.advantage is not None for record in group):
                yield f"step {group[0].step}: a frozen run has rewards"
        return
    credit = rewards_of(find_mapping(facts.mapping), batch_of(groups))
    due = advantages_by_group(find_normalizer(facts.normalizer), credit.reward, credit.components).tolist()
    parts = {name: values.tolist() for name, values in credit.components.items()}
    for number, (group, rewards) in enumerate(zip(groups, credit.reward.tolist(), strict=True)):
        where = f"step {group[0].step}: recorded"
        if not _components_agree(group, {name: rows[number] for name, rows in parts.items()}):
            yield f"{where} reward components are not those of {facts.mapping}"
        if not agree([record.reward for record in group], rewards):
            yield f"{where} rewards are not those of {facts.mapping}"
        if not agree([record.advantage for record in group], due[number]):
            yield f"{where} advantages are not those of normalizer {facts.normalizer}"


def _components_agree(group: Group, due: dict[str, list[float]]) -> bool:
    given = [record.components for record in group if record.components is not None]
    if len(given) < len(group) or any(parts.keys() != due.keys() for parts in given):
        return False
    return all(agree([parts[name] for parts in given], values) for name, values in due.items())


def _chain_problems(steps: list[StepRecord]) -> Iterator[str]:
    for previous, step in pairwise(steps):
        # A collapse keeps the best member, so it does not break the chain.
        if step.frontier_before != previous.frontier_after:
            yield f"step {step.step}: frontier does not continue from step {previous.step}"


def _learning_problems(group: Group, step: StepRecord, facts: RunFacts, all_told: bool) -> Iterator[str]:
    where, mapping, trained = f"step {step.step}", facts.mapping, facts.trained
    if step.mapping != (mapping if trained else None):
        yield f"{where}: mapping is {step.mapping}, that of the run's condition is {mapping}"
    zero = all(record.advantage == 0 for record in group) if trained else None
    if step.zero_advantage is not zero:
        yield f"{where}: zero_advantage is {step.zero_advantage}, its completions say {zero}"
    numbers = (step.loss, step.kl, step.grad_norm)
    # A rule need not have them all; whatever it tells is a number.
    due = numbers if all_told else [n for n in numbers if n is not None]
    if trained and step.training_tokens and not all(n is not None and isfinite(n) for n in due):
        yield f"{where}: a trained step has no finite loss, KL or gradient norm"
    if not (trained and step.training_tokens) and (numbers != (None,) * 3 or step.training_tokens):
        yield f"{where}: nothing was trained, and there is a loss, KL, gradient norm or token"
    if step.grad_norm is not None and step.grad_norm < 0:
        yield f"{where}: grad_norm is negative"


def _group_problems(
    directory: Path,
    manifest: Manifest,
    steps: list[StepRecord],
    texts: TextReplay,
    archive: ArchiveReplay,
    instances: int,
) -> Iterator[str]:
    facts, pending = manifest.facts, list[Group]()
    missing = list(_missing_code(facts))
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
        if len(pending) == _TOGETHER:
            yield from _credit_problems(pending, facts)
            pending.clear()
        if not manifest.of_host.own_loop:
            yield from texts.problems(group, step, generation)
            yield from _learning_problems(group, step, facts, manifest.of_rule.all_told)
    yield from _credit_problems(pending, facts)


def _problems(directory: Path, manifest: Manifest, parsed: ParsedTexts) -> Iterator[str]:
    config = manifest.config
    steps = list(read_records(directory / STEPS, StepRecord))
    yield from _chain_problems(steps)
    heuristics = list(read_records(directory / HEURISTICS, HeuristicRecord))
    if not manifest.of_host.own_loop:
        yield from store_problems(heuristics, config, parsed)
    archive = archive_replay(heuristics, config.get("search", {}), manifest.of_host)
    if not archive.seeds:
        yield f"{HEURISTICS} has no seed heuristic"
        return
    yield from _given_problems(heuristics, config)
    yield from _operator_problems(heuristics, steps, manifest.host)
    asked = manifest.of_host.instance_scores is True
    yield from heuristic_problems(heuristics, asked)
    stored = {(h.step, h.index): h for h in heuristics if h.operator is not None}
    texts = TextReplay(config, parsed, stored, manifest.of_host.exposures)
    instances = instances_of(heuristics) if asked else 0
    yield from _group_problems(directory, manifest, steps, texts, archive, instances)
    yield from archive.store_problems(heuristics)
    yield from pair_problems(directory, manifest)
    if not manifest.of_host.own_loop:
        yield from batch_problems(directory, manifest)
    yield from database_problems(directory, manifest)
    if len(steps) != manifest.facts.groups:
        yield f"{len(steps)} steps are recorded, the configuration asks for {manifest.facts.groups}"


def _operator_problems(
    heuristics: Sequence[HeuristicRecord], steps: Sequence[StepRecord], host: str
) -> Iterator[str]:
    """Names that the run's host does not know; what a step says is held against its completions elsewhere."""
    known = operators_of_host(host)
    if known is None:
        return
    for step in steps:
        if step.operator not in known:
            yield f"step {step.step}: host {host} has no operator {step.operator}"
    for heuristic in heuristics:
        if heuristic.operator is not None and heuristic.operator not in known:
            yield f"{HEURISTICS}: host {host} has no operator {heuristic.operator}"


def _given_problems(heuristics: list[HeuristicRecord], config: dict[str, Any]) -> Iterator[str]:
    """Whether a run was given the population that its configuration names, and none where it names none."""
    population = given(heuristics)
    due = (config.get("parent") or {}).get("archive_sha256")
    if due is None and population:
        yield f"{HEURISTICS} begins with a population, of which the configuration says nothing"
    if due is not None and population_sha256(population) != due:
        yield f"{HEURISTICS} begins with another population than the configuration says"
    if tuple(heuristics[1 : 1 + len(population)]) != population:
        yield f"{HEURISTICS} does not hold the given population directly behind the seed"


def _file_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    if convert(manifest.config, RunFacts).host != manifest.host:
        yield f"host is {manifest.host}, the configuration is not one of its runs"
    rule, settings = manifest.facts.learning_rule, manifest.rule_settings
    yield from ability_problems(manifest.host, manifest.of_host, rule, manifest.of_rule, settings)
    condition, normalizer = manifest.facts.condition, manifest.facts.normalizer
    if normalizer_of(condition, normalizer) != normalizer:
        yield f"normalizer is {normalizer}, condition {condition} names another one"
    if manifest.of_host.own_loop:
        return
    yield from manifest_problems(directory, manifest)
    steps = list(read_records(directory / STEPS, StepRecord))
    yield from adapter_problems(directory, manifest, steps, manifest.facts.trained)
    told, mapping = manifest.mapping_name, manifest.facts.mapping
    if told is not UNSET and told != (None if mapping == "frozen" else own_name(mapping)):
        yield f"mapping_name is {told!r}, which {mapping} does not call itself"


def record_problems(directory: Path, manifest: Manifest, parsed: ParsedTexts | None = None) -> list[str]:
    """Contradictions within a run's records, one line each; an unreadable line is one too.

    ``parsed`` carries what was parsed from one run to the next, whose equal programs have equal scores.
    """
    return _told(_problems(directory, manifest, parsed or ParsedTexts()))


def file_problems(directory: Path, manifest: Manifest) -> list[str]:
    """What manifest, configuration, timings and adapter of a run contradict in each other, one line each."""
    return _told(_file_problems(directory, manifest))


def _told(found: Iterator[str]) -> list[str]:
    problems: list[str] = []
    try:
        problems.extend(found)
    except S2SError as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"cannot read {error.filename}: {reason(error)}; restore it")
    except (KeyError, TypeError, ValueError) as error:
        problems.append(f"the manifest's configuration cannot be read ({type(error).__name__}: {error})")
    return problems
