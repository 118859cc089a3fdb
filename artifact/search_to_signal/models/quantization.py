"""Low precision through bitsandbytes 0.45.2, where there is a GPU; nothing here is imported on a CPU path."""

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from search_to_signal.base.errors import ConfigError


def bitsandbytes(setting: str) -> Any:
    """The library; raises ConfigError, naming the setting that asks for it, where it cannot work."""
    if not torch.cuda.is_available():
        raise ConfigError(f"{setting} needs a GPU, and torch finds none: change the setting in the profile")
    try:
        return import_module("bitsandbytes")
    except ImportError as error:
        raise ConfigError(f"{setting} needs bitsandbytes ({error}): install the extra 'gpu'") from error


def load_4bit(directory: Path) -> Any:
    """The causal language model of a directory in 4 bits, in evaluation mode, on the first GPU.

    NF4 with double quantization, computing in bfloat16, else float16: what Unsloth 2025.3.18 makes of
    ``load_in_4bit`` (models/llama.py) and the paper's precision. Raises ConfigError without a GPU or the
    library, naming both settings that may have asked for it.
    """
    bitsandbytes('model.quantization = "nf4" (or learner.load_in_4bit)')
    compute = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute,
    )
    model = AutoModelForCausalLM.from_pretrained(
        directory,
        quantization_config=quantization,
        torch_dtype=compute,
        device_map={"": 0},
        attn_implementation="sdpa",
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
    )
    return model.eval()


def base_weight(linear: Any) -> torch.Tensor:
    """The weight (outputs, inputs) of a linear layer, adapted or not, unpacked where it is in 4 bits."""
    weight: torch.Tensor = getattr(linear, "base_layer", linear).weight
    if hasattr(weight, "quant_state"):
        library = import_module("bitsandbytes.functional")
        unpacked: torch.Tensor = library.dequantize_4bit(weight.data, weight.quant_state)
        return unpacked
    return weight.data
