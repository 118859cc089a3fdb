"""The learner's side of a run: rewards from records, an optimizer opportunity per group, stored adapters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.seeding import derive_seed
from search_to_signal.credit import RewardMapping, get_mapping
from search_to_signal.credit.normalizers import Normalizer, get_normalizer
from search_to_signal.learner import GRPO, get_rule, rule_errors
from search_to_signal.learner.adapter import TrainedAdapter, adapter_sha256, attach_adapter, load_adapter
from search_to_signal.learner.base import Learner, LearnerSetup, StepResult, TrainingGroup
from search_to_signal.learner.sampler_check import sampler_difference
from search_to_signal.models.base import Generation, Generator, Trainable, completion_text
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_tokenizer, open_base_model
from search_to_signal.models.opening import generator_errors, open_trainable
from search_to_signal.models.settings import NF4, GenerationSettings
from search_to_signal.records.schema import CompletionRecord
from search_to_signal.run.config import ADAPTER, RunConfig
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
