"""A recorded run's adapters, made again by its recorded updates: nothing is sampled or evaluated."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
from search_to_signal.learner.base import RoundLearner, StepResult, TrainingGroup
from search_to_signal.learner.device import prepare_processor
from search_to_signal.progress import Progress
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import GENERATIONS, STEPS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord, StepRecord
from search_to_signal.runtime import keep_freed_memory


class Remade(NamedTuple):
    """A model with its adapter as it is after an update that was made again.

    ``result`` is None before the first update, and where a round was left out for a later one begins anew.
    """

    model: Any
    step: StepRecord | None = None
    result: StepResult | None = None

    @property
    def difference(self) -> str | None:
        """What to say of an update that did not give the recorded adapter, None for one that did."""
        if self.step is None or self.result is None:
            return None
        recorded, found = self.step.adapter_sha256, self.result.adapter_sha256
        if found == recorded:
            return None
        return (
            f"the update of step {self.step.step} comes out otherwise here: adapter {found}, recorded "
            f"{recorded} (s2s rerun says what differs between the machines)"
        )


def remade_adapters(
    config: RunConfig, recorded: Path, base: Any, *, last_round_only: bool = False
) -> Iterator[Remade]:
    """The model before the first update of a run and after each; it is one model, which the updates change.

    With ``last_round_only``, where rounds begin anew, all but the last one that trained are left out.
    """
    learner = begin_learner(config, base, load_tokenizer(model_directory(config.model)).pad_token_id)
    yield Remade(learner.model)
    steps = list(read_records(recorded / STEPS, StepRecord))
    last = _last_round(steps) if last_round_only else 0
    for step, group in zip(steps, _groups(config, recorded), strict=True):
        result = None
        with rule_code(config.learning_rule):
            if isinstance(learner, RoundLearner) and step.step < last:
                learner.collect(group)
            else:
                result = learner.step(group)
        yield Remade(learner.model, step, result)


def retrain(config: RunConfig, recorded: Path, directory: Path, progress: Progress) -> None:
    """Write the final adapter of a finished run below a directory, from the run's tokens and advantages.

    Each step's adapter is compared with the recorded checksum. Where rounds begin anew, the last one alone is
    trained. Raises RunDirectoryError for a run without final adapter, and at the first that differs.
    """
    if read_manifest(recorded).final_adapter_sha256 is None:
        raise RunDirectoryError(f"{recorded} ended with no adapter: it was frozen, or is not finished")
    keep_freed_memory()
    prepare_processor(config.threads)
    base = model_of_files(config)
    for remade in remade_adapters(config, recorded, base, last_round_only=True):
        if remade.difference is not None:
            raise RunDirectoryError(f"{recorded}: {remade.difference}")
        if remade.step is not None:
            progress.update(config.label, remade.step.step + 1, config.groups, "update")
    save_adapter(remade.model, directory / ADAPTER)


def _last_round(steps: list[StepRecord]) -> int:
    """The last step that trained, the last step where none did."""
    return max((step.step for step in steps if step.training_tokens), default=len(steps) - 1)


def _groups(config: RunConfig, recorded: Path) -> Iterator[TrainingGroup]:
    credited = credited_tokens(config)
    generations = read_records(recorded / GENERATIONS, GenerationRecord)
    for texts, records in zip(generations, read_groups(recorded), strict=True):
        truncated = [record.truncated for record in records]
        yield training_group(texts.prompt_ids, texts.completion_ids, truncated, records, credited)
