"""Consistency of one run: its records with each other, with its manifest, and with its reward mapping."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec import UNSET, convert

from search_to_signal.base.errors import ConfigError, IllFormedGroupError, MappingError
from search_to_signal.credit import find_mapping, own_name, rewards_of
from search_to_signal.credit.mappings import RoundSettings, distinct_scores, entries_of, recorded_rounds
from search_to_signal.credit.normalizers import advantages_by_group, find_normalizer
from search_to_signal.problems.base import mean_score
from search_to_signal.records.adapters import adapter_problems, unshipped
from search_to_signal.records.conditions import FROZEN, Condition
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import Manifest, RunFacts
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, STEPS, Group, read_groups, read_records
from search_to_signal.records.schema import (
    PREFERENCES,
    ArchiveEvent,
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    Outcome,
    PreferenceRecord,
    PreferenceRound,
    StepRecord,
    ability_problems,
    given,
    operators_of_host,
    population_sha256,
)
from search_to_signal.verify.consistency.archive import ArchiveReplay, archive_replay, database_problems
from search_to_signal.verify.consistency.completion_texts import (
    ParsedTexts,
    TextReplay,
    prompt_problems,
    store_problems,
)
from search_to_signal.verify.consistency.manifests import manifest_problems
from search_to_signal.verify.findings import findings_of

# The scores of the instances, where a run's host asks for them: their mean is the score, everywhere.


def instance_problems(group: Group, instances: int) -> Iterator[str]:
    """What a group says otherwise; ``instances`` is how many the seed was scored on, 0 where none are due."""
    for record in group:
        for text in _problems(record, instances if record.score is not None else 0):
            yield f"step {record.step}, completion {record.index}: {text}"


def heuristic_problems(heuristics: Sequence[HeuristicRecord], asked: bool) -> Iterator[str]:
    """The same of stored heuristics; ``asked`` says whether the run's host asks for instance scores."""
    instances = instances_of(heuristics)
    if bool(instances) is not asked:
        mismatch = f"the seed has {instances} instance scores, the host asks for {_ASKED[asked]}"
        yield f"{HEURISTICS}: {mismatch}"
        return
    for heuristic in heuristics:
        for text in _problems(heuristic, instances):
            yield f"{HEURISTICS}: step {heuristic.step}, completion {heuristic.index}: {text}"


_ASKED = ("none", "them")


def instances_of(heuristics: Sequence[HeuristicRecord]) -> int:
    """How many instances the seed has scores of."""
    return _count(heuristics[0]) if heuristics else 0


def _count(record: CompletionRecord | HeuristicRecord) -> int:
    return 0 if record.instance_scores is UNSET else len(record.instance_scores)


def _problems(record: CompletionRecord | HeuristicRecord, due: int) -> Iterator[str]:
    if _count(record) != due:
        yield f"{_count(record)} instance scores, where {due} are due"
    elif record.instance_scores is not UNSET and mean_score(record.instance_scores) != record.score:
        mean = mean_score(record.instance_scores)
        yield f"score is {record.score}, the mean of its instance scores is {mean}"


# The tokens and pairs that steps trained on, checked against the completions of their groups.


def batch_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    """Yield steps that trained out of turn, or on another number of tokens than their groups have."""
    size = manifest.of_rule.groups_per_step
    if not manifest.facts.trained or size is None:
        return
    if type(size) is not int or size < 1:
        yield f"the learning rule takes {size} groups for a step: give a number of at least 1"
        return
    learner, pending_tokens = manifest.config.get("learner", {}), 0
    # The number of credited tokens of a part follows from a tokenizer alone (recompute).
    credits_whole_texts = learner.get("credit", "both") == "both"
    # A file that ends before the other is already a problem of the records.
    recorded = zip(read_groups(directory), read_records(directory / STEPS, StepRecord), strict=False)
    for number, (group, step) in enumerate(recorded, start=1):
        pending_tokens += _loss_tokens(group, step, learner)
        expected = 0 if number % size else pending_tokens
        pending_tokens = 0 if expected else pending_tokens
        tokens = step.training_tokens
        if tokens != expected and (credits_whole_texts or not expected or not 0 <= tokens <= expected):
            yield f"step {step.step}: training_tokens is {tokens}, its completions have {expected}"


def _loss_tokens(group: Group, step: StepRecord, learner: dict[str, Any]) -> int:
    """The number of tokens of a group that enter the loss."""
    if step.not_finite is True or (step.zero_advantage and learner.get("zero_advantage") == "skip"):
        return 0
    excluded = learner.get("truncated") == "exclude"
    return sum(record.completion_tokens for record in group if not (excluded and record.truncated))


def pair_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    """Yield contradictions of a run's preference pairs, each derived again from the completions.

    A run whose learning rule uses no pairs must have no file of them.
    """
    if not (manifest.facts.trained and manifest.of_rule.pairs):
        if (directory / PREFERENCES).exists():
            yield f"{PREFERENCES}: the run's rule learns from no pairs"
        return
    try:
        rounds = _PairRounds(recorded_rounds(manifest.config))
    except ConfigError as error:
        yield f"config: {error}"
        return
    recorded = (
        read_records(directory / PREFERENCES, PreferenceRecord),
        read_groups(directory),
        read_records(directory / STEPS, StepRecord),
    )
    for line, (record, group, step) in enumerate(zip_longest(*recorded), start=1):
        if record is None or group is None or step is None or record.step != step.step:
            yield f"{PREFERENCES}:{line}: it does not hold the steps of the run, one line each"
            return
        problems = [*_entry_problems(record, group), *rounds.problems(record, group, step)]
        yield from (f"{PREFERENCES}:{line}: {problem}" for problem in problems)


def _entry_problems(record: PreferenceRecord, group: Group) -> Iterator[str]:
    for pair in record.pairs:
        for index in (pair.chosen, pair.rejected):
            if not 0 <= index < len(group):
                yield f"step {record.step} has no completion {index}: restore the file"
                return
    if record.pairs != entries_of(group):
        yield f"the pairs of step {record.step} are not those that its completions make"


class _PairRounds:
    """The pairs so far as (score of the chosen completion, tokens), and the scores since the last round."""

    def __init__(self, settings: RoundSettings) -> None:
        self._settings = settings
        self._pairs: list[tuple[float, int]] = []
        self._scores: list[float] = []
        self._groups = 0

    def problems(self, record: PreferenceRecord, group: Group, step: StepRecord) -> Iterator[str]:
        """Add a group's pairs, and yield the contradictions of its round of training."""
        self._groups += 1
        self._scores += distinct_scores(group)
        for pair in entries_of(group):
            tokens = group[pair.chosen].completion_tokens + group[pair.rejected].completion_tokens
            self._pairs.append((pair.chosen_score, tokens))
        expected = self._expected_round()
        if (expected is None) != (record.round is None):
            yield f"step {record.step}: a round is {'missing' if expected else 'recorded that was not due'}"
        elif expected is not None and record.round is not None:
            threshold, tokens_by_pair = expected
            yield from self._round_problems(record.round, threshold, tokens_by_pair, step)
        if record.round is None and step.training_tokens:
            yield f"step {record.step} was trained without a round"

    def _expected_round(self) -> tuple[float, list[int]] | None:
        """The threshold of a round, and the tokens of each pair above it; None where there is no round."""
        if self._groups % self._settings.finetuning_frequency:
            return None
        threshold = self._settings.threshold(self._scores)
        self._scores = []
        if threshold is None:
            return None
        tokens_by_pair = [tokens for score, tokens in self._pairs if score >= threshold]
        return (threshold, tokens_by_pair) if tokens_by_pair else None

    def _round_problems(
        self, recorded: PreferenceRound, threshold: float, tokens_by_pair: list[int], step: StepRecord
    ) -> Iterator[str]:
        kept = len(tokens_by_pair)
        steps_per_epoch = -(-self._settings.batches(kept) // self._settings.gradient_accumulation_steps)
        # The settings' count leaves out an epoch's last incomplete step, so training may end before the last
        # steps of the last epoch.
        all_steps = steps_per_epoch * self._settings.num_train_epochs
        steps = min(self._settings.steps(kept), all_steps)
        counts = (recorded.threshold, recorded.collected, recorded.kept, recorded.optimizer_steps)
        if counts != (threshold, len(self._pairs), kept, steps):
            yield f"the round of step {step.step} is not the one that its pairs give"
        most = self._settings.num_train_epochs * sum(tokens_by_pair)
        if step.training_tokens > most or (steps == all_steps and step.training_tokens != most):
            yield f"step {step.step}: training_tokens is {step.training_tokens}, its pairs have {most}"
        if not (0 <= recorded.accuracy <= 1 and isfinite(recorded.margin)):
            numbers = f"accuracy {recorded.accuracy} and margin {recorded.margin}"
            yield f"the round of step {step.step} has {numbers}"


# Recorded rewards and advantages, computed again from the outcomes and scores of their groups.

TOLERANCE = 1e-12


def agree(recorded: Sequence[float | None], expected: Sequence[float | None]) -> bool:
    """Whether numbers are equal within ``TOLERANCE``, relative and absolute; None equals None alone.

    Processors whose numerical kernels were not fixed (D46) round numpy's exponentials and sums differently.
    """
    if list(recorded) == list(expected):
        return True
    pairs = zip(recorded, expected, strict=False)
    return len(recorded) == len(expected) and all(a == b or _is_close(a, b) for a, b in pairs)


def _is_close(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def missing_code(facts: RunFacts) -> Iterator[str]:
    """Yield why a trained run's mapping or normalizer is not available: one line for the run."""
    try:
        if facts.trained:
            find_mapping(facts.mapping)
            find_normalizer(facts.normalizer)
    except ConfigError as error:
        yield str(error)


def credit_problems(groups: Sequence[Group], facts: RunFacts) -> Iterator[str]:
    """Yield groups whose components, rewards or advantages are not those of the run's condition."""
    if not groups:
        return
    try:
        problems = list(_credit_differences(groups, facts))
    except (IllFormedGroupError, MappingError) as error:
        problems = [f"step {groups[0][0].step}: {error}"]
    if problems and len(groups) > 1:
        # A run computes credit group by group: only a group alone gives its exact problems.
        for group in groups:
            yield from credit_problems([group], facts)
    else:
        yield from problems


def _credit_differences(groups: Sequence[Group], facts: RunFacts) -> Iterator[str]:
    """Differences from the credit of mapping and normalizer; one call for all groups is faster."""
    if not facts.trained:
        for group in groups:
            if any(record.reward is not None or record.advantage is not None for record in group):
                yield f"step {group[0].step}: a frozen run has rewards"
        return
    credit = rewards_of(find_mapping(facts.mapping), batch_of(groups))
    normalizer = find_normalizer(facts.normalizer)
    advantages = advantages_by_group(normalizer, credit.reward, credit.components).tolist()
    components = {name: values.tolist() for name, values in credit.components.items()}
    for number, (group, rewards) in enumerate(zip(groups, credit.reward.tolist(), strict=True)):
        where = f"step {group[0].step}: recorded"
        if not _components_agree(group, {name: rows[number] for name, rows in components.items()}):
            yield f"{where} reward components are not those of {facts.mapping}"
        if not agree([record.reward for record in group], rewards):
            yield f"{where} rewards are not those of {facts.mapping}"
        if not agree([record.advantage for record in group], advantages[number]):
            yield f"{where} advantages are not those of normalizer {facts.normalizer}"


def _components_agree(group: Group, expected: dict[str, list[float]]) -> bool:
    recorded = [record.components for record in group if record.components is not None]
    if len(recorded) < len(group) or any(components.keys() != expected.keys() for components in recorded):
        return False
    return all(
        agree([components[name] for components in recorded], values) for name, values in expected.items()
    )


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
