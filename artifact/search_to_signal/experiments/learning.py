"""The learner's side of a run: rewards from records, an optimizer opportunity per group, stored adapters."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from search_to_signal.errors import RunDirectoryError
from search_to_signal.experiments.adoption import LearnedAdapter
from search_to_signal.experiments.configuration import ADAPTER, RunConfig
from search_to_signal.generators.base import Generation, Generator, Trainable
from search_to_signal.generators.files import model_directory
from search_to_signal.generators.local import LocalGenerator, load_model, load_tokenizer
from search_to_signal.generators.opening import open_trainable
from search_to_signal.generators.settings import GenerationSettings
from search_to_signal.learner.adapter import adapter_sha256, attach_adapter, load_adapter
from search_to_signal.learner.grpo import Learner, StepResult
from search_to_signal.learner.quantization import load_4bit
from search_to_signal.records.schema import CompletionRecord
from search_to_signal.rewards import RewardMapping, get_mapping
from search_to_signal.seeding import derive_seed


@dataclass(frozen=True)
class Training:
    """A mapping, a learner and the generator that it teaches; a frozen run has none."""

    mapping: RewardMapping
    learner: Learner
    initial_sha256: str
    generator: Trainable

    def update(self, generation: Generation, records: list[CompletionRecord]) -> StepResult:
        """One optimizer opportunity, after which the generator speaks with the new adapter."""
        advantages = np.array([record.advantage for record in records], dtype=np.float64)
        completions = [completion.ids for completion in generation.completions]
        truncated = [completion.truncated for completion in generation.completions]
        result = self.learner.step(generation.prompt_ids, completions, advantages, truncated)
        self.generator.adopt(self._adapter)
        return result

    @property
    def sha256(self) -> str:
        """The checksum of the adapter as it is."""
        return adapter_sha256(self.learner.model)

    def save(self, directory: Path) -> None:
        """Write the adapter in PEFT's file form."""
        self._adapter.save(directory)

    def go_on(self, learner: bytes) -> None:
        """Take up a dumped learner, after which the generator speaks with its adapter."""
        self.learner.load(learner)
        self.generator.adopt(self._adapter)

    @property
    def _adapter(self) -> LearnedAdapter:
        return LearnedAdapter(self.learner.model)


def open_teachable(config: RunConfig, settings: GenerationSettings, scratch: Path) -> Trainable:
    """The generator of a run whose weights are here, the same for every condition.

    A local model in 4 bits holds the adapter itself: a sum of the two cannot be written back into 4 bits.
    """
    if settings.backend == "local" and config.learner.load_in_4bit:
        path = model_directory(config.model)
        return LocalGenerator(load_4bit(path), load_tokenizer(path), settings, shared=True)
    return open_trainable(settings, config.model, scratch)


def base_model(config: RunConfig, generator: Trainable) -> Any:
    """What an adapter is attached to: the generator's own weights or a copy, else those of the files."""
    shared = generator.base()
    if shared is not None:
        return shared
    load = load_4bit if config.learner.load_in_4bit else load_model
    return load(model_directory(config.model))


def begin_training(config: RunConfig, generator: Trainable) -> Training:
    """The training of a run's condition, from the weights that the generator samples with."""
    base = base_model(config, generator)
    model = attach_adapter(base, config.learner, derive_seed(config.seed, "adapter"))
    learner = Learner(model, config.learner, generator.pad_id)
    return Training(get_mapping(config.condition), learner, adapter_sha256(model), generator)


def speak_with(adapter: Path, sha256: str, base: Any, generator: Trainable) -> str:
    """Let ``generator`` speak with a stored adapter from its next token on; returns the adapter's checksum.

    ``base`` is its ``base_model``. The generator has to be fresh: another adapter in its weights would stay
    there. The checksum is taken of what was loaded, not of the file. Raises RunDirectoryError when it is not
    ``sha256``, ModelFileError when nothing can be loaded; the generator is then not to be used.
    """
    adapted = load_adapter(base, adapter)
    found = adapter_sha256(adapted)
    if found != sha256:
        raise RunDirectoryError(
            f"the adapter in {adapter} has the checksum {found}, its run recorded {sha256}: restore it"
        )
    generator.adopt(LearnedAdapter(adapted))
    return found


def begin_restart(config: RunConfig, directory: Path, generator: Generator) -> str | None:
    """Let a restart speak with its parent's final adapter; returns its checksum, None for any other run."""
    if config.parent is None:
        return None
    # A run with a parent was opened as one that an adapter can reach.
    teachable = cast(Trainable, generator)
    adapter = directory / config.parent.run / ADAPTER
    return speak_with(adapter, config.parent.adapter_sha256, base_model(config, teachable), teachable)
