"""What a learner was given, and what it says of it: credit, batches, preference pairs, numbers of steps."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import isfinite
from pathlib import Path
from typing import Any

from search_to_signal.base.errors import ConfigError, IllFormedGroupError, MappingError
from search_to_signal.credit import find_mapping, rewards_of
from search_to_signal.credit.assignment import agrees
from search_to_signal.credit.mappings import RoundSettings, distinct_scores, entries_of, recorded_rounds
from search_to_signal.credit.normalizers import advantages_by_group, find_normalizer
from search_to_signal.records.differences import Difference
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import Manifest, RunFacts
from search_to_signal.records.reader import COMPLETIONS, STEPS, Group, read_groups, read_records
from search_to_signal.records.schema import PREFERENCES, PreferenceRecord, PreferenceRound, StepRecord
from search_to_signal.run.recorded import RecordedGroup

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


def missing_code(facts: RunFacts) -> Iterator[str]:
    """Yield why a trained run's mapping or normalizer is not available: one line for the run."""
    try:
        if facts.trained:
            find_mapping(facts.mapping)
            find_normalizer(facts.normalizer)
    except ConfigError as error:
        yield str(error)


def credit_problems(groups: Sequence[RecordedGroup], facts: RunFacts) -> Iterator[str]:
    """Yield components, rewards and advantages that are not those of the run's condition."""
    if not groups:
        return
    try:
        problems = list(_credit_differences(groups, facts))
    except (IllFormedGroupError, MappingError) as error:
        problems = [f"step {groups[0].step.step}: {error}"]
    if problems and len(groups) > 1:
        # A run computes credit group by group: only a group alone gives its exact problems.
        for group in groups:
            yield from credit_problems([group], facts)
    else:
        yield from problems


def _credit_differences(groups: Sequence[RecordedGroup], facts: RunFacts) -> Iterator[str]:
    for recorded, credit in zip(groups, _credit_due(groups, facts), strict=True):
        for record, values in zip(recorded.group, credit, strict=True):
            for field, expected in zip(("components", "reward", "advantage"), values, strict=True):
                value = getattr(record, field)
                if not agrees(value, expected):
                    which = f"step {record.step}, completion {record.index}"
                    line = recorded.lines[0] + record.index
                    yield Difference(COMPLETIONS, line, which, field, value, expected).finding.line


def _credit_due(groups: Sequence[RecordedGroup], facts: RunFacts) -> Iterator[list[tuple[Any, Any, Any]]]:
    """Components, reward and advantage of every completion; one call for all groups is faster."""
    if not facts.trained:
        yield from ([(None, None, None)] * len(recorded.group) for recorded in groups)
        return
    credit = rewards_of(find_mapping(facts.mapping), batch_of([recorded.group for recorded in groups]))
    normalizer = find_normalizer(facts.normalizer)
    advantages = advantages_by_group(normalizer, credit.reward, credit.components).tolist()
    components = {name: values.tolist() for name, values in credit.components.items()}
    for number, rewards in enumerate(credit.reward.tolist()):
        yield [
            ({name: rows[number][index] for name, rows in components.items()}, reward, advantage)
            for index, (reward, advantage) in enumerate(zip(rewards, advantages[number], strict=True))
        ]


def step_number_problems(step: StepRecord, trained: bool, reports_all_numbers: bool) -> Iterator[str]:
    """Yield what a step says of loss, KL, gradient norm and tokens that no training gives."""
    where = f"step {step.step}"
    numbers = (step.loss, step.kl, step.grad_norm)
    # A learning rule may leave out some of them; those that it reports have to be finite.
    reported = numbers if reports_all_numbers else [n for n in numbers if n is not None]
    if trained and step.training_tokens and not all(n is not None and isfinite(n) for n in reported):
        yield f"{where}: a trained step has no finite loss, KL or gradient norm"
    if not (trained and step.training_tokens) and (numbers != (None,) * 3 or step.training_tokens):
        yield f"{where}: nothing was trained, and there is a loss, KL, gradient norm or token"
    if step.grad_norm is not None and step.grad_norm < 0:
        yield f"{where}: grad_norm is negative"
