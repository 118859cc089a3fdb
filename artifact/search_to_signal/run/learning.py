"""The learner's side of a run: rewards from records, an optimizer opportunity per group, stored adapters.

A recorded run's adapters are made again by its recorded updates: nothing is sampled or evaluated.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from search_to_signal.base.errors import RecordError, RunDirectoryError
from search_to_signal.base.processes import keep_freed_memory
from search_to_signal.base.progress import Progress
from search_to_signal.base.seeding import derive_seed
from search_to_signal.credit import RewardMapping, get_mapping
from search_to_signal.credit.normalizers import Normalizer, get_normalizer
from search_to_signal.learner import GRPO, get_rule, rule_errors
from search_to_signal.learner.adapter import (
    TrainedAdapter,
    adapter_sha256,
    attach_adapter,
    load_adapter,
    save_adapter,
)
from search_to_signal.learner.base import Learner, LearnerSetup, RoundLearner, StepResult, TrainingGroup
from search_to_signal.learner.grpo_loss import sampler_difference
from search_to_signal.models.base import Generation, Generator, Trainable, completion_text
from search_to_signal.models.device import memory_errors, prepare_processor
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_tokenizer, open_base_model
from search_to_signal.models.opening import generator_errors, open_trainable
from search_to_signal.models.settings import NF4, GenerationSettings
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import GENERATIONS, STEPS, read_groups, read_records
from search_to_signal.records.schema import CompletionRecord, GenerationRecord, StepRecord
from search_to_signal.run.config import ADAPTER, RunConfig
from search_to_signal.run.left_out import advantages_without, programs_of
from search_to_signal.sandbox.programs import part_tokens

Credited = Callable[[Sequence[int]], tuple[bool, ...]]


@dataclass(frozen=True)
class Training:
    """Mapping, normalizer and learner of a run, and the generator that it trains; a frozen run has none.

    ``credited`` marks the tokens of a completion that carry the gradient; None where all do (D43).
    ``settings`` are those that the generator was opened with.
    """

    mapping: RewardMapping
    normalizer: Normalizer
    learner: Learner
    initial_sha256: str
    generator: Trainable
    rule: str = GRPO
    credited: Credited | None = None
    settings: GenerationSettings = field(default_factory=GenerationSettings)

    def update(self, generation: Generation, records: list[CompletionRecord]) -> StepResult:
        """One optimizer opportunity, after which the generator samples with the new adapter."""
        ids = [completion.ids for completion in generation.completions]
        truncated = [completion.truncated for completion in generation.completions]
        group = training_group(generation.prompt_ids, ids, truncated, records, self.credited)
        limit = self.settings.served.max_difference
        difference = sampler_difference(self.learner.model, generation, records[0].step, limit)
        with rule_errors(self.rule):
            result = self.learner.step(group)
        self.publish_adapter()
        return result if difference is None else replace(result, sampler_difference=difference)

    @property
    def sha256(self) -> str:
        """The checksum of the adapter as it is."""
        return adapter_sha256(self.learner.model)

    def save(self, directory: Path) -> None:
        """Write the adapter in PEFT's file form."""
        TrainedAdapter(self.learner.model).save(directory)

    def restore(self, learner: bytes) -> None:
        """Load a dumped learner, after which the generator samples with its adapter."""
        with rule_errors(self.rule):
            self.learner.load(learner)
        self.publish_adapter()

    def publish_adapter(self) -> None:
        """Have the generator sample with the learner's adapter from its next token on."""
        with generator_errors(self.settings.backend):
            self.generator.load_adapter(TrainedAdapter(self.learner.model))


def training_group(
    prompt_ids: Sequence[int],
    completion_ids: Sequence[Sequence[int]],
    truncated: Sequence[bool],
    records: Sequence[CompletionRecord],
    credited: Credited | None,
) -> TrainingGroup:
    """A group as a learner takes it, of its tokens and its records with advantages."""
    return TrainingGroup(
        prompt_ids=prompt_ids,
        completion_ids=completion_ids,
        advantages=np.array([record.advantage for record in records], dtype=np.float64),
        truncated=truncated,
        records=records,
        credited=[credited(ids) for ids in completion_ids] if credited else (),
    )


def open_run_generator(config: RunConfig, settings: GenerationSettings, scratch: Path) -> Trainable:
    """The generator of a run whose weights are here, the same for every condition."""
    return open_trainable(settings, config.model, scratch, config.base.loading)


def base_model(config: RunConfig, generator: Trainable) -> Any:
    """What an adapter is attached to: the generator's own weights or a copy, else those of the files."""
    shared = generator.base()
    return shared if shared is not None else model_of_files(config)


def model_of_files(config: RunConfig) -> Any:
    """The base model of a run as its files have it; beside an engine in 4 bits, or as ``[model]`` says."""
    loading = NF4 if config.learner.load_in_4bit else config.base.loading
    return open_base_model(model_directory(config.model), loading)


def begin_training(config: RunConfig, generator: Trainable) -> Training:
    """The training of a run's condition, from the weights that the generator samples with."""
    learner = begin_learner(config, base_model(config, generator), generator.pad_id)
    mapping, normalizer = get_mapping(config.mapping), get_normalizer(config.normalizer)
    initial = adapter_sha256(learner.model)
    rule, credited = config.learning_rule, credited_tokens(config)
    return Training(mapping, normalizer, learner, initial, generator, rule, credited, config.generation)


def begin_learner(config: RunConfig, base: Any, pad_id: int) -> Learner:
    """The learner of a run before its first step, with a fresh adapter on ``base``."""
    model = attach_adapter(base, config.learner, derive_seed(config.seed, "adapter"))
    seed = derive_seed(config.seed, "rule")
    setup = LearnerSetup(model, config.learner, pad_id, config.rule_settings, seed)
    with rule_errors(config.learning_rule):
        return get_rule(config.learning_rule).learner(setup)


def credited_tokens(config: RunConfig) -> Credited | None:
    """What marks the tokens of a completion that carry the gradient; None where all do (D43)."""
    part = config.learner.credit
    if part == "both":
        return None
    tokenizer = load_tokenizer(model_directory(config.model))
    return partial(part_tokens, part=part, decode=completion_text(tokenizer), idea_end=config.reading)


def load_stored_adapter(adapter: Path, sha256: str, base: Any, generator: Trainable) -> str:
    """Have ``generator`` sample with a stored adapter from its next token on; returns its checksum.

    ``base`` is its ``base_model``. The generator has to be fresh: another adapter in its weights would stay
    there. The checksum is taken of what was loaded, not of the file. Raises RunDirectoryError when it is not
    ``sha256``, ModelFileError when nothing can be loaded; the generator is then not to be used.
    """
    adapted = load_adapter(base, adapter)
    checksum = adapter_sha256(adapted)
    if checksum != sha256:
        raise RunDirectoryError(
            f"the adapter in {adapter} has the checksum {checksum}, its run recorded {sha256}: restore it"
        )
    generator.load_adapter(TrainedAdapter(adapted))
    return checksum


def begin_restart(config: RunConfig, directory: Path, generator: Generator) -> str | None:
    """Give a restart its parent's final adapter; returns its checksum, None for any other run."""
    if config.parent is None or config.parent.adapter_sha256 is None:
        return None
    # A run with a parent was opened as one that an adapter can reach.
    trainable = cast(Trainable, generator)
    adapter = directory / config.parent.run / ADAPTER
    return load_stored_adapter(
        adapter, config.parent.adapter_sha256, base_model(config, trainable), trainable
    )


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
        recorded, retrained = self.step.adapter_sha256, self.result.adapter_sha256
        if retrained == recorded:
            return None
        return (
            f"the update of step {self.step.step} gives another adapter here: {retrained}, recorded "
            f"{recorded} (s2s rerun says what differs between the machines)"
        )


def remade_adapters(
    config: RunConfig, recorded: Path, base: Any, *, last_round_only: bool = False, without: str | None = None
) -> Iterator[Remade]:
    """The model before the first update of a run and after each; it is one model, which the updates change.

    With ``last_round_only``, where rounds begin anew, all but the last one that trained are left out. The
    credit of ``without``, classes of ``run/left_out.py``, is left out of every group.
    Raises RecordError for records that no such run has left.
    """
    learner = begin_learner(config, base, load_tokenizer(model_directory(config.model)).pad_token_id)
    yield Remade(learner.model)
    yield from _updates_again(learner, config, recorded, last_round_only=last_round_only, without=without)


def _updates_again(
    learner: Learner,
    config: RunConfig,
    recorded: Path,
    *,
    last_round_only: bool = False,
    without: str | None = None,
) -> Iterator[Remade]:
    """A fresh learner's model after each recorded update; raises as ``remade_adapters`` does."""
    steps = list(read_records(recorded / STEPS, StepRecord))
    # The last step that trained, the last step where none did.
    of_round = max((step.step for step in steps if step.training_tokens), default=len(steps) - 1)
    last = of_round if last_round_only else 0
    for step, group in zip_longest(steps, _groups(config, recorded, learner.model.config, without)):
        if step is None or group is None:
            raise RecordError(
                f"{recorded} holds {len(steps)} steps, but another number of groups: restore it"
            )
        if step.step >= config.groups:
            return
        result = None
        with rule_errors(config.learning_rule):
            if isinstance(learner, RoundLearner) and step.step < last:
                learner.collect(group)
            else:
                result = learner.step(group)
        yield Remade(learner.model, step, result)


def remake_learner(
    training: Training, config: RunConfig, directory: Path, sha256: str, progress: Progress
) -> None:
    """Bring a fresh learner to where a stopped run's records bring it, whose dump was left out.

    Raises RunDirectoryError at the first update that gives another adapter than the recorded one, and where
    another learner comes of them than the one of that checksum; RecordError as ``remade_adapters`` does.
    """
    remedy = "bring its checkpoint's .safetensors, or move the run away to begin again"
    for remade in _updates_again(training.learner, config, directory):
        if remade.difference is not None:
            raise RunDirectoryError(f"{directory}: {remade.difference}: {remedy}")
        if remade.step is not None:
            progress.update(config.label, remade.step.step, config.groups, "update")
    with rule_errors(training.rule):
        dumped = training.learner.dump()
    if hashlib.sha256(dumped).hexdigest() != sha256:
        raise RunDirectoryError(
            f"{directory}: its records give another learner here than its checkpoint holds: {remedy}"
        )
    training.publish_adapter()


@memory_errors("this run's updates")
def retrain(
    config: RunConfig, recorded: Path, directory: Path, progress: Progress, without: str | None = None
) -> None:
    """Write the final adapter of a finished run below a directory, from the run's tokens and advantages.

    Each step's adapter is compared with the recorded checksum, unless credit is left out (``without``). Where
    rounds begin anew, the last one alone is trained. Raises RunDirectoryError for a run without final
    adapter, and at the first that differs, and RecordError for records that no update can be made of.
    """
    if read_manifest(recorded).final_adapter_sha256 is None:
        raise RunDirectoryError(f"{recorded} has no final adapter: it was frozen, or is not finished")
    keep_freed_memory()
    prepare_processor(config.threads)
    base = model_of_files(config)
    for remade in remade_adapters(config, recorded, base, last_round_only=True, without=without):
        if without is None and remade.difference is not None:
            raise RunDirectoryError(f"{recorded}: {remade.difference}")
        if remade.step is not None:
            progress.update(config.label, remade.step.step + 1, config.groups, "update")
    save_adapter(remade.model, directory / ADAPTER)


def _groups(config: RunConfig, recorded: Path, shape: Any, without: str | None) -> Iterator[TrainingGroup]:
    """The groups of a run; raises RecordError for one that no model of this shape has answered."""
    credited = credited_tokens(config)
    programs = None if without is None else programs_of(recorded)
    generations = read_records(recorded / GENERATIONS, GenerationRecord)
    for texts, records in zip_longest(generations, read_groups(recorded)):
        if texts is None or records is None or len(texts.completion_ids) != len(records):
            raise RecordError(f"{recorded} does not hold the tokens of every completion: restore it")
        if wrong := _strange_tokens(texts, shape):
            raise RecordError(f"{recorded}/{GENERATIONS}: step {texts.step}: {wrong}: restore it")
        if any(record.advantage is None for record in records):
            raise RecordError(
                f"{recorded}: step {texts.step} has no advantages: it was frozen, or is damaged"
            )
        truncated = [record.truncated for record in records]
        group = training_group(texts.prompt_ids, texts.completion_ids, truncated, records, credited)
        if programs is not None and without is not None:
            left = advantages_without(group.advantages, programs.kinds(records, texts), without)
            group = replace(group, advantages=left)
        yield group


def _strange_tokens(texts: GenerationRecord, shape: Any) -> str:
    """What of a group's tokens the model cannot have read or written; empty where it can."""
    longest = len(texts.prompt_ids) + max(map(len, texts.completion_ids))
    if longest > shape.max_position_embeddings:
        return f"{longest} tokens, but the model takes at most {shape.max_position_embeddings}"
    if not texts.prompt_ids or not all(texts.completion_ids):
        return "a prompt or completion without tokens"
    ids = (*texts.prompt_ids, *(token for completion in texts.completion_ids for token in completion))
    if not all(0 <= token < shape.vocab_size for token in ids):
        return "a token that its model does not have"
    return ""
