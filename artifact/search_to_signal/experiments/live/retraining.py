"""A recorded run's final adapter, made again by its recorded updates: nothing is sampled or evaluated."""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.errors import RunDirectoryError
from search_to_signal.experiments.configuration import ADAPTER, RunConfig
from search_to_signal.experiments.live.learning import (
    begin_learner,
    credited_tokens,
    model_of_files,
    training_group,
)
from search_to_signal.generators.files import model_directory
from search_to_signal.generators.local import load_tokenizer
from search_to_signal.learner import rule_code
from search_to_signal.learner.adapter import save_adapter
from search_to_signal.learner.base import RoundLearner, TrainingGroup
from search_to_signal.learner.device import prepare_processor
from search_to_signal.progress import Progress
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import GENERATIONS, STEPS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord, StepRecord
from search_to_signal.runtime import keep_freed_memory


def retrain(config: RunConfig, recorded: Path, directory: Path, progress: Progress) -> None:
    """Write the final adapter of a finished run below a directory, from the run's tokens and advantages.

    Each step's adapter is compared with the recorded checksum. Where rounds begin anew, the last one alone is
    trained. Raises RunDirectoryError for a run without final adapter, and at the first that differs.
    """
    if read_manifest(recorded).final_adapter_sha256 is None:
        raise RunDirectoryError(f"{recorded} ended with no adapter: it was frozen, or is not finished")
    keep_freed_memory()
    prepare_processor(config.threads)
    pad_id = load_tokenizer(model_directory(config.model)).pad_token_id
    learner = begin_learner(config, model_of_files(config), pad_id)
    steps = list(read_records(recorded / STEPS, StepRecord))
    last = _last_round(steps)
    for step, group in zip(steps, _groups(config, recorded), strict=True):
        with rule_code(config.learning_rule):
            if isinstance(learner, RoundLearner) and step.step < last:
                learner.collect(group)
                continue
            found = learner.step(group).adapter_sha256
        if found != step.adapter_sha256:
            raise RunDirectoryError(
                f"{recorded}: the update of step {step.step} comes out otherwise here: adapter {found}, "
                f"recorded {step.adapter_sha256} (s2s rerun says what differs between the machines)"
            )
        progress.update(config.label, step.step + 1, len(steps), "update")
    save_adapter(learner.model, directory / ADAPTER)


def _last_round(steps: list[StepRecord]) -> int:
    """The last step that trained, the last step where none did."""
    return max((step.step for step in steps if step.training_tokens), default=len(steps) - 1)


def _groups(config: RunConfig, recorded: Path) -> Iterator[TrainingGroup]:
    credited = credited_tokens(config)
    generations = read_records(recorded / GENERATIONS, GenerationRecord)
    for texts, records in zip(generations, read_groups(recorded), strict=True):
        truncated = [record.truncated for record in records]
        yield training_group(texts.prompt_ids, texts.completion_ids, truncated, records, credited)
