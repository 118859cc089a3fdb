"""Memory and time of one group of the paper's profile on a GPU, with a randomly initialised model.

    python tests/proofs/gpu_budget.py                    Qwen2.5-7B's shape, 4-bit where there is bitsandbytes
    python tests/proofs/gpu_budget.py --precision bf16   the same shape in bfloat16
    python tests/proofs/gpu_budget.py --cap-mib 24000    fail above this much memory, as a 24 GB card would
    python tests/proofs/gpu_budget.py --tiny             the same steps on a CPU, to test this script

Generation is ours with a key-value cache (transformers' forward pass, no vLLM), the update is the learner's
own GRPO step: LoRA rank 32 on seven projections, gradient checkpointing, 8-bit AdamW where there is
bitsandbytes. Weights are random: no completion ends early, and no number depends on what a model has learned.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.base import TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.base import request_seeds
from search_to_signal.models.sampling import sample_group

CARD_MIB = 24_564  # the paper's RTX 4090 and 3090 as nvidia-smi reports them
GROUP, TEMPERATURE = 4, 0.9
QWEN_7B = {
    "vocab_size": 152_064,
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "rope_theta": 1_000_000.0,
}
TINY = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@dataclass(frozen=True)
class Plan:
    """What is run: a shape, a precision, a device, and lengths in tokens."""

    shape: dict[str, Any]
    precision: str
    device: str
    prompt: int
    completion: int
    updates: int

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in."""
        return torch.float32 if self.precision == "fp32" else torch.bfloat16


def installed(name: str) -> str:
    """A package's version, or that it is missing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def quantize(module: torch.nn.Module, bits: ModuleType, dtype: torch.dtype) -> None:
    """Replace every matrix below a module by NF4 with double quantization, in place."""
    for name, child in module.named_children():
        if not isinstance(child, torch.nn.Linear):
            quantize(child, bits, dtype)
            continue
        device, has_bias = child.weight.device, child.bias is not None
        small = bits.nn.Linear4bit(
            child.in_features,
            child.out_features,
            has_bias,
            compute_dtype=dtype,
            quant_type="nf4",
            device="meta",
        )
        weight = child.weight.data.cpu()
        small.weight = bits.nn.Params4bit(
            weight, requires_grad=False, compress_statistics=True, quant_type="nf4"
        ).to(device)
        small.bias = child.bias
        setattr(module, name, small)


def random_model(plan: Plan) -> Any:
    """The model of the plan; embeddings and head stay in the computing precision, as transformers has it."""
    config = Qwen2Config(**plan.shape, max_position_embeddings=4096, tie_word_embeddings=False)
    config.sliding_window = None
    torch.manual_seed(0)
    with torch.device(plan.device):
        model = AutoModelForCausalLM.from_config(config, torch_dtype=plan.dtype, attn_implementation="sdpa")
    model = model.to(plan.device).eval().requires_grad_(False)
    if plan.precision == "4bit":
        import bitsandbytes

        quantize(model.model.layers, bitsandbytes, plan.dtype)
        model.is_loaded_in_4bit = True
    return model


def mib(peak: int) -> str:
    """Bytes as MiB, beside the card."""
    return f"{peak / 2**20:8.0f} MiB ({100 * peak / 2**20 / CARD_MIB:5.1f} % of a 24 GB card)"


def measured(label: str, work: Callable[[], Any], device: str) -> tuple[Any, float]:
    """Run something; print its time and the most memory that it held, allocated and reserved."""
    cuda = device == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    print(f"{label}: {seconds:.2f} s", flush=True)
    if cuda:
        print(f"  allocated {mib(torch.cuda.max_memory_allocated())}")
        print(f"  reserved  {mib(torch.cuda.max_memory_reserved())}", flush=True)
    return result, seconds


def generated(model: Any, plan: Plan, prompt: list[int]) -> list[tuple[int, ...]]:
    """One group by our generator, after two tokens to warm up."""

    def group(tokens: int) -> list[tuple[int, ...]]:
        found = sample_group(
            model,
            prompt,
            seeds=request_seeds(1, GROUP),
            max_new_tokens=tokens,
            temperature=TEMPERATURE,
            end_ids=frozenset(),
        )
        return list(found.completion_ids)

    group(2)
    label = f"generation of {GROUP} x {plan.completion} tokens after a prompt of {plan.prompt}"
    completions, seconds = measured(label, lambda: group(plan.completion), plan.device)
    speed, step = GROUP * plan.completion / seconds, 1000 * seconds / plan.completion
    print(f"  {speed:.0f} tokens/s, {step:.1f} ms a step", flush=True)
    return list(completions)


def updated(model: Any, plan: Plan, prompt: list[int], completions: list[tuple[int, ...]]) -> None:
    """Optimizer steps on one group by our learner, checkpointed; the first one warms up."""
    low = {"optimizer": "adamw_8bit"} if plan.precision == "4bit" else {}
    settings = msgspec.convert({"gradient_checkpointing": True, **low}, LearnerSettings)
    learner = GrpoLearner(attach_adapter(model, settings, seed=1), settings, pad_id=0)
    advantages = np.array([1.0, 0.5, -0.5, -1.0])
    for number in range(plan.updates):
        label = f"update {number + 1} on {GROUP} x {len(prompt) + len(completions[0])} tokens"
        result, _ = measured(
            label, lambda: learner.step(TrainingGroup(prompt, completions, advantages)), plan.device
        )
        print(f"  loss {result.loss:.4f}, KL {result.kl:.2e}, gradient norm {result.grad_norm:.3e}")


def planned(arguments: argparse.Namespace) -> Plan:
    """The plan of the command line."""
    if arguments.tiny:
        return Plan(TINY, "fp32", "cpu", 24, 12, 2)
    precision = arguments.precision or ("bf16" if installed("bitsandbytes") == "missing" else "4bit")
    return Plan(QWEN_7B, precision, "cuda", arguments.prompt, arguments.completion, arguments.updates)


def main() -> None:
    """Print what was run on what, and every measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--precision", choices=("4bit", "bf16"))
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--completion", type=int, default=1024)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--cap-mib", type=int)
    arguments = parser.parse_args()
    plan = planned(arguments)
    names = ("torch", "transformers", "peft", "trl", "bitsandbytes")
    print(", ".join(f"{name} {installed(name)}" for name in names))
    if plan.device == "cuda":
        card = torch.cuda.get_device_properties(0)
        print(f"{card.name}, {card.total_memory / 2**20:.0f} MiB; precision {plan.precision}")
        if arguments.cap_mib:
            torch.cuda.set_per_process_memory_fraction(arguments.cap_mib * 2**20 / card.total_memory)
    model, _ = measured("random weights", lambda: random_model(plan), plan.device)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"  {count / 1e9:.2f} G numbers stored")
    prompt = np.random.default_rng(1).integers(3, plan.shape["vocab_size"], plan.prompt).tolist()
    completions = generated(model, plan, prompt)
    updated(model, plan, prompt, completions)


if __name__ == "__main__":
    main()
