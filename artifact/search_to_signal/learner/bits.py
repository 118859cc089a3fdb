"""Learning on a GPU: bitsandbytes 0.45.2 and the base model there; nothing here runs on a CPU path."""

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from search_to_signal.errors import ConfigError


def bitsandbytes(setting: str) -> Any:
    """The library; raises ConfigError, naming the setting that asks for it, where it cannot work."""
    _require_gpu(setting)
    try:
        return import_module("bitsandbytes")
    except ImportError as error:
        raise ConfigError(f"{setting} needs bitsandbytes ({error}): install the extra 'gpu'") from error


def load_on_gpu(directory: Path, *, in_4bit: bool) -> Any:
    """The causal language model of a directory on the first GPU, in evaluation mode; raises ConfigError.

    In bfloat16, else float16. In 4 bits it is NF4 with double quantization: what Unsloth 2025.3.18 makes of
    ``load_in_4bit`` (models/llama.py), and the paper's precision.
    """
    _require_gpu("a learner beside generation.backend 'vllm'")
    compute = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    options: dict[str, Any] = {}
    if in_4bit:
        bitsandbytes("generation.engine.load_in_4bit")
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=compute,
        )
    model = AutoModelForCausalLM.from_pretrained(
        directory,
        torch_dtype=compute,
        device_map={"": 0},
        attn_implementation="sdpa",
        local_files_only=True,
        **options,
    )
    return model.eval()


def _require_gpu(setting: str) -> None:
    if not torch.cuda.is_available():
        raise ConfigError(f"{setting} needs a GPU, and torch finds none: change it in the profile")
