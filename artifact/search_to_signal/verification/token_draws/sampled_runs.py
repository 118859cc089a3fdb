"""The groups of a recorded run that can be read here, each with the model that it was sampled with."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from search_to_signal import plugins
from search_to_signal.errors import ConfigError
from search_to_signal.generators.settings import ModelLoading
from search_to_signal.learner import GROUP, RULES
from search_to_signal.profiles.run_config import ADAPTER, RunConfig
from search_to_signal.records.manifest import read_manifest
from search_to_signal.runtime import keep_freed_memory
from search_to_signal.verification.recompute.runs import run_config
from search_to_signal.verification.rerun.rerun import model_here

if TYPE_CHECKING:
    from search_to_signal.loop.retraining import Remade

_BY_OTHERS = {
    "api": "an endpoint shows no token ids",
    "vllm": "vLLM draws by numbers of its own, which no record holds",
    "unsloth": "Unsloth draws by numbers of its own, which no record holds",
}


@dataclass(frozen=True)
class SampledRun:
    """A run whose tokens can be held against the numbers of its seed.

    ``config`` names the model that is here. Groups up to ``readable`` can be read: each needs the adapter
    that the updates before it make. ``adapter`` is a stored one that all of them were sampled with.
    """

    name: str
    directory: Path
    config: RunConfig
    readable: int
    adapter: Path | None = None

    @property
    def loading(self) -> ModelLoading:
        """In which precision it was sampled."""
        return self.config.base.loading

    @property
    def exact(self) -> bool:
        """Whether its updates have to give the recorded bits here."""
        return _exact(self.config)


def sampled_run(
    name: str, run: Path, root: Path, models: tuple[Path, ...], adapters: Path | None, updates: int | None
) -> SampledRun:
    """A run as it can be read here; ``updates`` is how many may be made again, by default all that are exact.

    Raises ConfigError with the reason where none of its groups can be.
    """
    manifest = read_manifest(run)
    if manifest.of_host.own_loop:
        raise ConfigError("the released host samples by itself")
    if manifest.status != "complete":
        raise ConfigError("the run is not complete")
    config = run_config(manifest)
    if config.generation.backend in _BY_OTHERS:
        raise ConfigError(_BY_OTHERS[config.generation.backend])
    if config.base.quantization != "none":
        raise ConfigError("its model was in 4 bits, which a card alone unpacks")
    filtered = config.generation.top_k is not None or config.generation.top_p < 1.0
    if filtered and (config.base.dtype != "float32"):
        raise ConfigError("with top_k or top_p in bfloat16 rounding decides which tokens are left out")
    config = msgspec.structs.replace(config, model=model_here(config, manifest, models))
    if not config.trained:
        return SampledRun(
            name, run, config, config.groups, _stored_adapter(name, run, root, config, adapters)
        )
    plugins.find(config.learning_rule, RULES, GROUP, "--rule")
    made = updates if updates is not None else config.groups if _exact(config) else 0
    return SampledRun(name, run, config, min(config.groups, made + 1))


def _exact(config: RunConfig) -> bool:
    # A card adds up in another order, and reading is in float32.
    return not config.on_card and config.base.dtype == "float32"


def _stored_adapter(
    name: str, run: Path, root: Path, config: RunConfig, adapters: Path | None
) -> Path | None:
    if config.parent is None or config.parent.adapter_sha256 is None:
        return None
    parent = (run / config.parent.run).resolve()
    if not parent.is_relative_to(root.resolve()):
        raise ConfigError("the run that it starts from lies elsewhere: give the whole results directory")
    place = parent.relative_to(root.resolve())
    for directory in (parent, *([adapters / place] if adapters is not None else [])):
        if (directory / ADAPTER).is_dir():
            return directory / ADAPTER
    raise ConfigError(
        f"the adapter of {place} is not stored: s2s retrain makes it, and --adapters DIR says where"
    )


def models_by_group(sampled: SampledRun) -> "Iterator[Remade]":
    """The model that each group was sampled with, in order; one model, which updates change.

    Raises S2SError where it cannot be loaded, or its updates cannot be made here. Loads torch.
    """
    from search_to_signal.generators.files import model_directory
    from search_to_signal.generators.token_intervals import open_for_reading
    from search_to_signal.learner.adapter import adapter_sha256, load_adapter
    from search_to_signal.learner.device import prepare_processor
    from search_to_signal.loop.retraining import Remade, remade_adapters

    config = sampled.config
    keep_freed_memory()
    prepare_processor(config.threads if sampled.exact else len(os.sched_getaffinity(0)))
    base = open_for_reading(model_directory(config.model), sampled.loading)
    if config.trained:
        yield from remade_adapters(config, sampled.directory, base)
        return
    if sampled.adapter is not None:
        base = load_adapter(base, sampled.adapter).eval()
        if config.parent is None or adapter_sha256(base) != config.parent.adapter_sha256:
            raise ConfigError(f"the adapter in {sampled.adapter} is not the recorded one: restore it")
    yield from repeat(Remade(base))


def vocabulary(model: Any, config: RunConfig) -> tuple[int, frozenset[int]]:
    """How many tokens a run's model knows, and which of them end a completion."""
    from search_to_signal.generators.chat import end_ids
    from search_to_signal.generators.cpu_decoder import causal_model
    from search_to_signal.generators.files import model_directory
    from search_to_signal.generators.local import load_tokenizer

    base, tokenizer = causal_model(model), load_tokenizer(model_directory(config.model))
    return int(base.config.vocab_size), end_ids(tokenizer, getattr(base, "generation_config", None))


def distance_to_stored(sampled: SampledRun, model: Any) -> float | None:
    """How far a model's adapter lies from the run's final one, by the size of that; None without one.

    Sizes are those of the products of the adapters' factors, which a fresh adapter has none of.
    """
    from search_to_signal.learner.adapter import TENSORS, adapter_tensors, read_tensors
    from search_to_signal.learner.deltas import adapter_delta, product_inner

    stored = sampled.directory / ADAPTER
    if not (stored / TENSORS).is_file():
        return None
    recorded = read_tensors(stored)
    none = {name: tensor * 0 for name, tensor in recorded.items()}
    apart, whole = adapter_delta(recorded, adapter_tensors(model)), adapter_delta(none, recorded)
    size = product_inner(whole, whole)
    return math.sqrt(max(product_inner(apart, apart), 0.0) / size) if size > 0.0 else None
