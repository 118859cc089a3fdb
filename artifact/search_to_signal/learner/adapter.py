"""LoRA adapters: a seeded start, a canonical file form, and one checksum over their tensors."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft.mapping import get_peft_model
from peft.peft_model import PeftModel
from peft.tuners.lora import LoraConfig
from peft.utils.save_and_load import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import save

from search_to_signal.errors import ModelFileError
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.records.files import write_atomically

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def attach_adapter(model: Any, settings: LearnerSettings, seed: int) -> Any:
    """The model with a fresh LoRA adapter on all seven projections; the seed alone decides its matrices.

    PEFT draws them from the global stream, which is therefore set for the draw and then put back.
    """
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules=list(PROJECTIONS),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return get_peft_model(model, config)


def load_adapter(model: Any, directory: Path) -> Any:
    """The model with the adapter that ``save_adapter`` wrote, trainable; raises ModelFileError.

    PEFT only warns of tensors that the file lacks: compare ``adapter_sha256`` with the recorded one.
    """
    if not (directory / "adapter_config.json").is_file():
        raise ModelFileError(f"cannot load the adapter in {directory}: there is none; restore its files")
    try:
        return PeftModel.from_pretrained(model, directory, is_trainable=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelFileError(f"cannot load the adapter in {directory}: {error}; restore its files") from error


def adapter_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The adapter's tensors by name, sorted, on the CPU."""
    # No embedding is adapted; PEFT would look for the base model's configuration to find that out.
    tensors = get_peft_model_state_dict(model, save_embedding_layers=False)  # type: ignore[no-untyped-call]
    return {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}


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
    write_atomically(directory / "adapter_model.safetensors", tensors)
    config = {name: _canonical(value) for name, value in model.peft_config["default"].to_dict().items()}
    config["base_model_name_or_path"] = None
    text = json.dumps(config, indent=2, sort_keys=True, default=_canonical)
    write_atomically(directory / "adapter_config.json", f"{text}\n".encode())


@torch.no_grad()
def publish(adapted: Any, plain: Any) -> None:
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
