"""Samples from the engine inside Unsloth 2025.3.18, whose 4-bit weights the learner then shares.

The paper's arrangement on a 24 GB card. Checked and run as ``vllm`` is. A learner attaches its adapter with
PEFT; Unsloth's fused LoRA kernels are not used.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from search_to_signal.errors import ConfigError
from search_to_signal.generators.local import load_tokenizer
from search_to_signal.generators.settings import GenerationSettings
from search_to_signal.generators.vllm import Engine, VllmGenerator, engine_errors, stopping_ids
from search_to_signal.progress import one_line


@contextmanager
def working_directory(path: Path) -> Iterator[None]:
    """Work in a directory for a while; the process has one working directory, so this is for start-up."""
    before = Path.cwd()
    path.mkdir(parents=True, exist_ok=True)
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def check_attention(llama: Any) -> None:
    """Refuse an Unsloth whose training pass would read later tokens; raises ConfigError.

    Without xformers and flash-attn this release calls torch's attention with neither a mask nor
    ``is_causal``. Its log-probabilities are then not those of the tokens that were sampled.
    """
    if not (llama.HAS_XFORMERS or llama.HAS_FLASH_ATTENTION):
        raise ConfigError(
            "Unsloth attends to later tokens when it trains without xformers or flash-attn, and can import "
            "neither: see what `python -c 'import xformers.ops.fmha'` says, or use the backend local or vllm"
        )


def open_unsloth(settings: GenerationSettings, model: Path, scratch: Path) -> VllmGenerator:
    """Load a model directory by Unsloth with its engine; raises ConfigError where it is not installed."""
    model, scratch, knobs = model.resolve(), scratch.resolve(), settings.engine
    os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")  # it would ask a server to count the start
    # Unsloth writes the code that it compiles into the working directory, when imported and when loading.
    with working_directory(scratch):
        # Unsloth replaces TRL's trainer by one whose log-probabilities are None. What was
        # imported before stays TRL's.
        import_module("search_to_signal.learner.grpo_loss")
        try:
            unsloth, llama = import_module("unsloth"), import_module("unsloth.models.llama")
        except (ImportError, RuntimeError) as error:
            # Where torch finds no card it raises NotImplementedError, which is a RuntimeError.
            raise ConfigError(
                f"Unsloth cannot be imported ({one_line(str(error), 300)}): install the extra 'gpu', and see "
                "that torch finds the card (python -c 'import torch; torch.cuda.init()')"
            ) from error
        check_attention(llama)
        with engine_errors(model):
            loaded, _ = unsloth.FastLanguageModel.from_pretrained(
                model_name=str(model),
                use_exact_model_name=True,  # a local directory is never replaced by one of their uploads
                max_seq_length=knobs.context,
                load_in_4bit=knobs.load_in_4bit,
                fast_inference=True,
                gpu_memory_utilization=knobs.gpu_memory_utilization,
                max_lora_rank=knobs.lora_rank,
            )
        # Unsloth replaces vLLM's LoRARequest by its own, so this import has to come after it.
        vllm, adapters = import_module("vllm"), import_module("vllm.lora.request")
    tokenizer = load_tokenizer(model)
    engine = Engine(loaded.vllm_engine, vllm.SamplingParams, adapters.LoRARequest)
    return VllmGenerator(engine, tokenizer, settings, scratch, stopping_ids(tokenizer, model), loaded)
