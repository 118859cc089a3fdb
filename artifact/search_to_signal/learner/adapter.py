"""LoRA adapters: a seeded start, a canonical file form, and one checksum over their tensors."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model  # type: ignore[attr-defined]
from peft.tuners.lora import LoraConfig
from peft.utils.save_and_load import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from search_to_signal.base.errors import ConfigError, ModelFileError
from search_to_signal.learner.settings import PROJECTIONS, LearnerSettings
from search_to_signal.records.files import open_regular, read_regular, write_atomically

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
# What is written of a configuration: PEFT 0.14.0's fields. Those of newer releases have their defaults.
_FIELDS = (
    *("alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "eva_config"),
    *("exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights", "layer_replication"),
    *("layers_pattern", "layers_to_transform", "loftq_config", "lora_alpha", "lora_bias", "lora_dropout"),
    *("megatron_config", "megatron_core", "modules_to_save", "peft_type", "r", "rank_pattern", "revision"),
    *("target_modules", "task_type", "use_dora", "use_rslora"),
)


def attach_adapter(model: Any, settings: LearnerSettings, seed: int) -> Any:
    """The model with a fresh LoRA adapter on its projections; the seed alone decides its matrices.

    PEFT draws them from the global stream, which is therefore set for the draw and then put back. Raises
    ModelFileError for a model without linear layers.
    """
    return _attached(model, _config(settings, _adapted(model)), seed)


def _adapted(model: Any) -> list[str]:
    """The names of the layers that adapters are trained on: all seven projections, else every linear one."""
    names = {
        name.rpartition(".")[2]: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings()
    }
    if names.keys() >= set(PROJECTIONS):
        return list(PROJECTIONS)
    if not names:
        raise ModelFileError(f"the model ({type(model).__name__}) has no linear layers to train adapters on")
    return sorted(names)


def _config(settings: LearnerSettings, adapted: list[str]) -> LoraConfig:
    return LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules=adapted,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )


def _attached(model: Any, config: LoraConfig, seed: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return get_peft_model(model, config)


def load_adapter(model: Any, directory: Path) -> Any:
    """The model with the adapter that ``save_adapter`` wrote, trainable.

    Only JSON and safetensors are read, and of the JSON what ``attach_adapter`` decides: PEFT's own loading
    imports a module that the file names, and takes a pickle where there are no safetensors. Raises
    ModelFileError for anything else than such an adapter of this model.
    """
    try:
        config = _read_config(directory / CONFIG, _adapted(model))
        tensors = _stored(directory / TENSORS)
        adapted = _attached(model, config, seed=0)
        expected = {name: tensor.shape for name, tensor in adapter_tensors(adapted).items()}
        if {name: tensor.shape for name, tensor in tensors.items()} != expected:
            raise ValueError("its tensors do not fit this model and rank")
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError, ConfigError) as error:
        raise ModelFileError(f"cannot load the adapter in {directory}: {error}; restore its files") from error
    set_adapter(adapted, tensors)
    return adapted


def read_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """The tensors of a stored adapter by name, of whatever model; raises ModelFileError."""
    try:
        return _stored(directory / TENSORS)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"cannot load the adapter in {directory}: {error}; restore its files") from error


def _stored(path: Path) -> dict[str, torch.Tensor]:
    open_regular(path).close()  # safetensors opens it again, by its name.
    return load_file(path)


def _read_config(path: Path, adapted: list[str]) -> LoraConfig:
    stored = json.loads(read_regular(path))
    if not isinstance(stored, dict):
        raise ValueError(f"{path.name} is no object")
    rank, alpha = stored.get("r"), stored.get("lora_alpha")
    if not isinstance(rank, int) or not isinstance(alpha, int):
        raise ValueError(f"{path.name} has no rank and alpha")
    config = _config(LearnerSettings(lora_rank=rank, lora_alpha=alpha), adapted)
    written = _plain(config)
    for name in sorted({*stored, *written}):
        if stored.get(name) != written.get(name):
            raise ValueError(
                f"{path.name} has another {name} than an adapter of this package: {stored.get(name)!r}"
            )
    return config


def adapter_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The adapter's tensors by name, sorted, on the CPU."""
    # No embedding is adapted; PEFT would look for the base model's configuration to find that out.
    tensors = get_peft_model_state_dict(model, save_embedding_layers=False)  # type: ignore[no-untyped-call]
    return _on_processor({name: tensors[name].detach() for name in sorted(tensors)})


def _on_processor(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors on the CPU; from a card in one transfer, because each would cost as much as all."""
    first = next(iter(tensors.values()))
    if not first.is_cuda or any(tensor.dtype != first.dtype for tensor in tensors.values()):
        return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    gathered = torch.cat([tensor.reshape(-1) for tensor in tensors.values()])
    # Pinned memory takes a transfer at the bus's speed; torch keeps it for the next.
    flat = torch.empty(gathered.shape, dtype=first.dtype, pin_memory=True).copy_(gathered)
    parts = torch.split(flat, [tensor.numel() for tensor in tensors.values()])
    return {name: part.view(tensors[name].shape) for name, part in zip(tensors, parts, strict=True)}


def set_adapter(model: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put back tensors that ``adapter_tensors`` returned."""
    set_peft_model_state_dict(model, dict(tensors))


def adapter_sha256(model: Any) -> str:
    """SHA-256 over names, shapes and bytes of the adapter's tensors, in order of name."""
    digest = hashlib.sha256()
    for name, tensor in adapter_tensors(model).items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _plain(config: LoraConfig) -> dict[str, Any]:
    """A configuration as it is written: JSON, without the name of a base model."""
    fields = config.to_dict()  # type: ignore[no-untyped-call]
    plain = {name: _canonical(fields[name]) for name in _FIELDS if name in fields}
    text = json.dumps({**plain, "base_model_name_or_path": None}, default=_canonical)
    written: dict[str, Any] = json.loads(text)
    return written


def _canonical(value: Any) -> Any:
    # PEFT keeps the module names in a set, whose order follows the hash seed.
    if isinstance(value, set | frozenset):
        return sorted(value)
    plain = isinstance(value, str | int | float | bool | list | dict | None)
    return value if plain else str(value)


def save_adapter(model: Any, directory: Path) -> None:
    """Write the adapter in PEFT's file form; equal adapters give equal bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = save(adapter_tensors(model), metadata={"format": "pt"})
    write_atomically(directory / TENSORS, tensors)
    text = json.dumps(_plain(model.peft_config["default"]), indent=2, sort_keys=True)
    write_atomically(directory / CONFIG, f"{text}\n".encode())


@torch.no_grad()
def merge_adapter(adapted: Any, plain: Any) -> None:
    """Make ``plain``, a copy of the base model, compute what the adapted model computes.

    Every call starts from the untouched base weights, so nothing accumulates, as it would by merging and
    unmerging. Sampling from plain weights costs less per token than sampling through the adapter. Where
    ``plain`` is no copy but holds the adapter itself, as a 4-bit base does, there is nothing to do.
    """
    if adapted.get_base_model() is plain:
        return
    weights = dict(plain.named_modules())
    for name, module in adapted.base_model.model.named_modules():
        if hasattr(module, "lora_A"):
            delta = module.get_delta_weight("default")
            weights[name].weight.copy_(module.base_layer.weight + delta)


@dataclass(frozen=True)
class TrainedAdapter:
    """The adapter of a learner's model, as ``generators.base.Adapter`` asks for it."""

    model: Any

    def merge_into(self, plain: Any) -> None:
        """Make a plain copy of the base model compute what the adapted one computes."""
        merge_adapter(self.model, plain)

    def save(self, directory: Path) -> None:
        """Write the adapter in PEFT's form."""
        save_adapter(self.model, directory)


# How far an update moved an adapter, and how two updates compare.

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class AdapterDelta:
    """Final minus initial adapter: ``raw`` by tensor, ``factors`` (L, R) by module with L R = BA - B0 A0."""

    raw: Tensors
    factors: tuple[tuple[torch.Tensor, torch.Tensor], ...]


@dataclass(frozen=True)
class Comparison:
    """Two changes: cosines in [-1, 1], norm of first over second, share of agreeing signs; or None."""

    cosine: float | None
    product_cosine: float | None
    norm_ratio: float | None
    sign_agreement: float | None


def adapter_delta(initial: Tensors, final: Tensors) -> AdapterDelta:
    """The change between two adapters of one shape."""
    raw = {name: final[name].double() - initial[name].double() for name in final}
    stems = [name.removesuffix("lora_A.weight") for name in final if name.endswith("lora_A.weight")]
    factors = []
    for stem in stems:
        a, b = f"{stem}lora_A.weight", f"{stem}lora_B.weight"
        # BA - B0 A0 = (B - B0) A + B0 (A - A0), which cancels nothing and is zero where nothing moved.
        left = torch.cat([raw[b], initial[b].double()], dim=1)
        factors.append((left, torch.cat([final[a].double(), raw[a]], dim=0)))
    return AdapterDelta(raw, tuple(factors))


def raw_inner(first: AdapterDelta, second: AdapterDelta) -> float:
    """Inner product over the raw LoRA tensors."""
    return sum(float((first.raw[name] * second.raw[name]).sum()) for name in first.raw)


def product_inner(first: AdapterDelta, second: AdapterDelta) -> float:
    """Inner product over the products of the factors, summed over modules; no product is ever formed.

    <L R, M S> = trace(R^T L^T M S) = sum of (L^T M) * (R S^T), which has twice the rank rows and columns.
    """
    pairs = zip(first.factors, second.factors, strict=True)
    return sum(float(((left.T @ m) * (right @ s.T)).sum()) for (left, right), (m, s) in pairs)


def compare(first: AdapterDelta, second: AdapterDelta) -> Comparison:
    """Compare two changes of one initial adapter."""
    raw = raw_inner(first, first), raw_inner(second, second)
    product = product_inner(first, first), product_inner(second, second)
    return Comparison(
        cosine=_cosine(raw_inner(first, second), *raw),
        product_cosine=_cosine(product_inner(first, second), *product),
        norm_ratio=math.sqrt(raw[0] / raw[1]) if raw[1] > 0.0 else None,
        sign_agreement=_sign_agreement(first, second),
    )


def _cosine(inner: float, first: float, second: float) -> float | None:
    if not (first > 0.0 and second > 0.0):
        return None
    return max(-1.0, min(1.0, inner / math.sqrt(first * second)))


def _sign_agreement(first: AdapterDelta, second: AdapterDelta) -> float | None:
    agreeing = moved = 0
    for name in first.raw:
        if name.endswith("lora_B.weight"):
            signs = torch.sign(first.raw[name]) * torch.sign(second.raw[name])
            agreeing, moved = agreeing + int((signs > 0).sum()), moved + int((signs != 0).sum())
    return agreeing / moved if moved else None
