"""The groups of a recorded run that can be read on this machine, each with the model that sampled it."""

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

_UNKNOWN_NUMBERS = {
    "api": "an endpoint shows no token ids",
    "vllm": "vLLM draws by numbers of its own, which no record holds",
    "unsloth": "Unsloth draws by numbers of its own, which no record holds",
}


@dataclass(frozen=True)
class SampledRun:
    """A run whose tokens can be compared with the random numbers of its seed.

    ``config`` names a model of this machine. The first ``readable`` groups can be read: each needs the
    adapter of the updates before it. ``updates`` may be computed again; where that is as many as groups, the
    final adapter comes of them. ``adapter`` is a stored one that all groups were sampled with.
    """

    name: str
    directory: Path
    config: RunConfig
    readable: int
    adapter: Path | None = None
    updates: int = 0

    @property
    def loading(self) -> ModelLoading:
        """The precision of sampling."""
        return self.config.base.loading

    @property
    def exact(self) -> bool:
        """Whether its updates have to give the recorded bits on this machine."""
        return _is_exact(self.config)


def sampled_run(
    name: str, run: Path, root: Path, models: tuple[Path, ...], adapters: Path | None, updates: int | None
) -> SampledRun:
    """Return a run as it can be read on this machine.

    ``updates`` is the number of updates to compute again: by default all where they are exact, else none.
    Raises ConfigError with the reason where no group can be read.
    """
    manifest = read_manifest(run)
    if manifest.of_host.own_loop:
        raise ConfigError("the released host samples by itself")
    if manifest.status != "complete":
        raise ConfigError("the run is not complete")
    config = run_config(manifest)
    if config.generation.backend in _UNKNOWN_NUMBERS:
        raise ConfigError(_UNKNOWN_NUMBERS[config.generation.backend])
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
    wanted = updates if updates is not None else config.groups if _is_exact(config) else 0
    computed = min(config.groups, wanted)
    return SampledRun(name, run, config, min(config.groups, computed + 1), updates=computed)


def _is_exact(config: RunConfig) -> bool:
    # A GPU sums in another order, and tokens are read in float32.
    return not config.on_card and config.base.dtype == "float32"


def _stored_adapter(
    name: str, run: Path, root: Path, config: RunConfig, adapters: Path | None
) -> Path | None:
    if config.parent is None or config.parent.adapter_sha256 is None:
        return None
    parent = (run / config.parent.run).resolve()
    if not parent.is_relative_to(root.resolve()):
        raise ConfigError("the run that it starts from lies elsewhere: give the whole results directory")
    parent_name = parent.relative_to(root.resolve())
    for directory in (parent, *([adapters / parent_name] if adapters is not None else [])):
        if (directory / ADAPTER).is_dir():
            return directory / ADAPTER
    raise ConfigError(
        f"the adapter of {parent_name} is not stored: s2s retrain makes it, and --adapters DIR says where"
    )


def models_by_group(sampled: SampledRun) -> "Iterator[Remade]":
    """Yield the model that sampled each group, in order; it is one model, which updates change in place.

    Raises S2SError where it cannot be loaded, or its updates cannot be computed here. Loads torch.
    """
    from search_to_signal.generators.model_files import model_directory
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
    """Return the size of a model's vocabulary, and the tokens that end a completion."""
    from search_to_signal.generators.chat import end_ids
    from search_to_signal.generators.cpu_decoder import causal_model
    from search_to_signal.generators.local import load_tokenizer
    from search_to_signal.generators.model_files import model_directory

    base, tokenizer = causal_model(model), load_tokenizer(model_directory(config.model))
    return int(base.config.vocab_size), end_ids(tokenizer, getattr(base, "generation_config", None))


def distance_to_stored(sampled: SampledRun, model: Any) -> float | None:
    """Return the distance of a model's adapter to the run's stored final one, divided by the smaller norm.

    None without a stored adapter; infinite where one of the two is zero and the other is not. Norms are those
    of the products of the adapters' factors; the product of a fresh adapter is zero.
    """
    from search_to_signal.learner.adapter import TENSORS, adapter_tensors, read_tensors
    from search_to_signal.learner.deltas import adapter_delta, product_inner

    stored = sampled.directory / ADAPTER
    if not (stored / TENSORS).is_file():
        return None
    recorded = read_tensors(stored)
    made = adapter_tensors(model)
    zero = {name: tensor * 0 for name, tensor in recorded.items()}
    difference = adapter_delta(recorded, made)
    # By the norm of either alone, one scaled far up or far down would lie within 1 of the other.
    deltas = (adapter_delta(zero, tensors) for tensors in (recorded, made))
    size = min(product_inner(delta, delta) for delta in deltas)
    distance = math.sqrt(max(product_inner(difference, difference), 0.0))
    if size <= 0.0:
        # An adapter that does nothing, where the other does something.
        return math.inf if distance else None
    return distance / math.sqrt(size)
