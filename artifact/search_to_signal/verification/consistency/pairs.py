"""The pairs that a run learned from, against its completions: no pair is taken from their file alone."""

from collections.abc import Iterator
from itertools import zip_longest
from math import isfinite
from pathlib import Path

from search_to_signal.errors import ConfigError
from search_to_signal.records.manifest import Manifest
from search_to_signal.records.preferences import PREFERENCES, PreferenceRecord, PreferenceRound
from search_to_signal.records.reader import STEPS, Group, read_groups, read_records
from search_to_signal.records.schema import StepRecord
from search_to_signal.rewards.pair_rounds import RoundSettings, distinct_scores, entries_of, recorded_rounds


def pair_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    """What the pairs of a run contradict; a run whose rule takes none has no file of them."""
    if not (manifest.facts.trained and manifest.of_rule.pairs):
        if (directory / PREFERENCES).exists():
            yield f"{PREFERENCES}: the run's rule learns from no pairs"
        return
    try:
        pending = _Pending(recorded_rounds(manifest.config))
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
        problems = [*_entry_problems(record, group), *pending.problems(record, group, step)]
        yield from (f"{PREFERENCES}:{line}: {problem}" for problem in problems)


def _entry_problems(record: PreferenceRecord, group: Group) -> Iterator[str]:
    for pair in record.pairs:
        for index in (pair.chosen, pair.rejected):
            if not 0 <= index < len(group):
                yield f"step {record.step} has no completion {index}: restore the file"
                return
    if record.pairs != entries_of(group):
        yield f"the pairs of step {record.step} are not those that its completions make"


class _Pending:
    """The pairs so far, by score of the choice and tokens, and the scores since the last round."""

    def __init__(self, settings: RoundSettings) -> None:
        self._settings = settings
        self._pairs: list[tuple[float, int]] = []
        self._scores: list[float] = []
        self._groups = 0

    def problems(self, record: PreferenceRecord, group: Group, step: StepRecord) -> Iterator[str]:
        """Take a group; what its round is, and is not."""
        self._groups += 1
        self._scores += distinct_scores(group)
        for pair in entries_of(group):
            tokens = group[pair.chosen].completion_tokens + group[pair.rejected].completion_tokens
            self._pairs.append((pair.chosen_score, tokens))
        due = self._due()
        if (due is None) != (record.round is None):
            yield f"step {record.step}: a round is {'missing' if due else 'recorded that was not due'}"
        elif due is not None and record.round is not None:
            threshold, kept = due
            yield from self._round_problems(record.round, threshold, kept, step)
        if record.round is None and step.training_tokens:
            yield f"step {record.step} was trained without a round"

    def _due(self) -> tuple[float, list[int]] | None:
        """The threshold of a round and the tokens of each pair that it keeps."""
        if self._groups % self._settings.finetuning_frequency:
            return None
        threshold = self._settings.threshold(self._scores)
        self._scores = []
        if threshold is None:
            return None
        kept = [tokens for score, tokens in self._pairs if score >= threshold]
        return (threshold, kept) if kept else None

    def _round_problems(
        self, found: PreferenceRound, threshold: float, kept: list[int], step: StepRecord
    ) -> Iterator[str]:
        steps = self._settings.steps(len(kept))
        whole = -(-self._settings.batches(len(kept)) // self._settings.gradient_accumulation_steps)
        # An epoch's rest is a step that the count leaves out, so that the last steps may not be reached.
        steps = min(steps, whole * self._settings.num_train_epochs)
        told = (found.threshold, found.collected, found.kept, found.optimizer_steps)
        if told != (threshold, len(self._pairs), len(kept), steps):
            yield f"the round of step {step.step} is not the one that its pairs give"
        most = self._settings.num_train_epochs * sum(kept)
        all_of_them = steps == whole * self._settings.num_train_epochs
        if step.training_tokens > most or (all_of_them and step.training_tokens != most):
            yield f"step {step.step}: training_tokens is {step.training_tokens}, its pairs have {most}"
        if not (0 <= found.accuracy <= 1 and isfinite(found.margin)):
            yield f"the round of step {step.step} has accuracy {found.accuracy} and margin {found.margin}"
