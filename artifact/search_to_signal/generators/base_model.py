"""The weights that completions are sampled from and adapters are trained on, opened in one way everywhere."""

from pathlib import Path
from typing import Any

import torch

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.foreign import try_model
from search_to_signal.generators.local import LocalGenerator, load_model, load_tokenizer
from search_to_signal.generators.settings import GenerationSettings, ModelLoading
from search_to_signal.learner.device import LESS_MEMORY, memory_errors, prepare_device
from search_to_signal.learner.quantization import load_4bit

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def open_base_model(directory: Path, loading: ModelLoading, less_memory: str = LESS_MEMORY) -> Any:
    """The causal language model of a directory, in evaluation mode, as ``[model]`` says it is loaded.

    Its output head is float32 whatever the rest is: in bfloat16 a logit of 20 is known to 0.06 alone, for the
    sampler and for the loss. Raises ConfigError without the card or library that is asked for, or where the
    card has too little memory, which says ``less_memory``: what there is to change for needing less of it.
    Raises ModelFileError for files that cannot be loaded.
    """
    if loading.device == "cpu" and loading.dtype == "float32":
        return load_model(directory)
    prepare_device(loading.device)
    with memory_errors(f"the model in {directory}", less_memory):
        if loading.quantization == "nf4":
            try_model(directory)
            model = load_4bit(directory)
        else:
            model = load_model(directory, _DTYPES[loading.dtype]).to(loading.device)
        _raise_head(model)
    return model


def _raise_head(model: Any) -> None:
    """Have the output head compute in float32; its values are those of the files."""
    head = model.get_output_embeddings()
    if head is None or model.get_input_embeddings() is head:
        raise ModelFileError(f"{type(model).__name__} has no output head of its own")
    if head.weight is model.get_input_embeddings().weight:
        # A shared table stays as it is where tokens are looked up.
        head.weight = torch.nn.Parameter(head.weight.detach().float(), requires_grad=False)
    else:
        head.float()
    head.register_forward_pre_hook(_in_float32)


def _in_float32(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (inputs[0].float(), *inputs[1:])


def open_local(
    directory: Path,
    loading: ModelLoading,
    settings: GenerationSettings,
    less_memory: str = LESS_MEMORY,
) -> LocalGenerator:
    """A generator over a model directory; raises as ``open_base_model`` and ``load_tokenizer`` do.

    On a card the learner adapts the very weights that are sampled from: there is room for them once, and
    nothing is merged into them, because bfloat16 would round small updates away.
    """
    # First: a tokenizer that lives in a forked child would keep the memory of a model that was there before.
    tokenizer = load_tokenizer(directory)
    model = open_base_model(directory, loading, less_memory)
    return LocalGenerator(model, tokenizer, settings, shared=loading != ModelLoading())
