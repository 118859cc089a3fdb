"""The batches that the entropic rule stepped on, against the groups of the run."""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.records.manifest import Manifest
from search_to_signal.records.reader import STEPS, read_groups, read_records
from search_to_signal.records.schema import StepRecord

ENTROPIC = "entropic"
GROUPS_PER_BATCH = 8
"""The rule's default."""


def batch_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    """Steps that trained out of turn, or on other tokens than those of their batch."""
    if not (manifest.facts.trained and manifest.facts.learning_rule == ENTROPIC):
        return
    size = manifest.config.get("rule_settings", {}).get("groups_per_batch", GROUPS_PER_BATCH)
    if type(size) is not int or size < 1:
        yield f"config: rule_settings.groups_per_batch is {size}: give a number of at least 1"
        return
    steps, waiting = read_records(directory / STEPS, StepRecord), 0
    for number, (group, step) in enumerate(zip(read_groups(directory), steps, strict=False), start=1):
        waiting += sum(record.completion_tokens for record in group)
        due = 0 if number % size else waiting
        waiting = 0 if due else waiting
        if step.training_tokens != due:
            yield f"step {step.step}: training_tokens is {step.training_tokens}, its batch has {due}"
