"""The tokens that steps trained on, against the groups that a step of the run's rule takes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from search_to_signal.records.manifest import Manifest
from search_to_signal.records.reader import STEPS, Group, read_groups, read_records
from search_to_signal.records.schema import StepRecord


def batch_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    """Steps that trained out of turn, or on other tokens than those of their groups."""
    size = manifest.of_rule.groups_per_step
    if not manifest.facts.trained or size is None:
        return
    if type(size) is not int or size < 1:
        yield f"the learning rule takes {size} groups for a step: give a number of at least 1"
        return
    learner, waiting = manifest.config.get("learner", {}), 0
    # Of a part's tokens the tokenizer alone can tell how many they are (recompute).
    whole = learner.get("credit", "both") == "both"
    # Where one of the files ends before the other, that has been told.
    recorded = zip(read_groups(directory), read_records(directory / STEPS, StepRecord), strict=False)
    for number, (group, step) in enumerate(recorded, start=1):
        waiting += _tokens(group, step, learner)
        due = 0 if number % size else waiting
        waiting = 0 if due else waiting
        found = step.training_tokens
        if found != due and (whole or not due or not 0 <= found <= due):
            yield f"step {step.step}: training_tokens is {found}, its completions have {due}"


def _tokens(group: Group, step: StepRecord, learner: dict[str, Any]) -> int:
    """The tokens of a group that enter the loss."""
    if step.not_finite is True or (step.zero_advantage and learner.get("zero_advantage") == "skip"):
        return 0
    excluded = learner.get("truncated") == "exclude"
    return sum(record.completion_tokens for record in group if not (excluded and record.truncated))
