"""Do the records of a run agree with each other, and with the mapping that the run claims?"""

from collections.abc import Iterator
from itertools import pairwise, zip_longest
from pathlib import Path

from search_to_signal.errors import ConfigError, IllFormedGroupError, MappingError, S2SError
from search_to_signal.normalizer import group_advantages
from search_to_signal.provenance.archive import ArchiveReplay
from search_to_signal.provenance.long_prompts import prompt_problems
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import Manifest
from search_to_signal.records.reader import HEURISTICS, STEPS, read_groups, read_records
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    HeuristicRecord,
    Outcome,
    StepRecord,
)
from search_to_signal.rewards import find_mapping, rewards_of

Group = tuple[CompletionRecord, ...]


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


def _credit_problems(group: Group, condition: str, trained: bool) -> Iterator[str]:
    if not trained:
        if any(record.reward is not None or record.advantage is not None for record in group):
            yield f"step {group[0].step}: a frozen run has rewards"
        return
    try:
        credit = rewards_of(find_mapping(condition), batch_of([group]))
    except (ConfigError, IllFormedGroupError, MappingError) as error:
        yield f"step {group[0].step}: {error}"
        return
    rewards, advantages = credit.reward, group_advantages(credit.reward)
    parts = [{name: values[0, i] for name, values in credit.components.items()} for i in range(len(group))]
    if [record.components for record in group] != parts:
        yield f"step {group[0].step}: recorded reward components are not those of {condition}"
    if [record.reward for record in group] != rewards[0].tolist():
        yield f"step {group[0].step}: recorded rewards are not those of {condition}"
    if [record.advantage for record in group] != advantages[0].tolist():
        yield f"step {group[0].step}: recorded advantages are not those of the group normalizer"


def _chain_problems(steps: list[StepRecord]) -> Iterator[str]:
    for previous, step in pairwise(steps):
        # A collapse keeps the best member, so it does not break the chain.
        if step.frontier_before != previous.frontier_after:
            yield f"step {step.step}: frontier does not continue from step {previous.step}"


def record_problems(directory: Path, manifest: Manifest) -> list[str]:
    """Contradictions within a run's records, one line each; an unreadable line is one too."""
    config = manifest.config
    trained = config["condition"] != "frozen" and config.get("parent") is None
    try:
        steps = list(read_records(directory / STEPS, StepRecord))
        problems = list(_chain_problems(steps))
        heuristics = list(read_records(directory / HEURISTICS, HeuristicRecord))
        archive = ArchiveReplay.of(heuristics, own_rule=manifest.host == "released")
        for group, step in zip_longest(read_groups(directory), steps):
            if group is None or step is None or group[0].step != step.step:
                return [*problems, "completions.jsonl and steps.jsonl do not hold the same steps"]
            if len(group) != config["generation"]["group_size"]:
                problems.append(f"step {step.step}: {len(group)} completions in the group")
            problems += _outcome_problems(group)
            problems += _step_problems(group, step)
            problems += prompt_problems(group, step, config["generation"])
            problems += archive.problems(group, step)
            problems += _credit_problems(group, config["condition"], trained)
        problems += archive.store_problems(heuristics)
    except (S2SError, OSError) as error:
        return [str(error)]
    if len(steps) != config["groups"]:
        problems.append(f"{len(steps)} steps are recorded, the configuration asks for {config['groups']}")
    return problems
