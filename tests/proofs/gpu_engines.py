"""Run vLLM's and Unsloth's generators on a GPU with a randomly initialised model, and measure them.

    python tests/proofs/gpu_engines.py make --model DIR              a model directory of Qwen2.5-7B's shape
    python tests/proofs/gpu_engines.py make --model DIR --layers 2   the same with fewer layers
    python tests/proofs/gpu_engines.py make --model DIR --shape qwen3-4b --tokens DIR
                                                   another shape, and the tokenizer of another directory
    python tests/proofs/gpu_engines.py run --model DIR --backend vllm
    python tests/proofs/gpu_engines.py run --model DIR --backend unsloth --cap-mib 24000

A run samples groups, takes the learner's steps on one of them, and hands adapters over to the engine. The
engine gets the paper's share, 0.8, of a 24 GB card, whatever the size of the card that is there; the
learner has the paper's settings. ``--cap-mib`` fails every allocation of torch beyond so much memory. Weights
are random, so nearly every completion goes to its limit, and no number depends on what a model has learned.
Each claim that could fail ends in ``ok`` or ``FAILED``, and one that failed makes the exit status 1.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from search_to_signal.base.package_data import MODELS, PROFILES
from search_to_signal.base.settings import load_toml
from search_to_signal.learner.adapter import TrainedAdapter, adapter_tensors, set_adapter
from search_to_signal.learner.base import TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.learner.grpo_loss import TokenGroup, token_log_probabilities
from search_to_signal.models.base import Generation, encoded
from search_to_signal.models.local import load_tokenizer
from search_to_signal.models.releases import in_precision
from search_to_signal.run.config import RunConfig
from search_to_signal.run.learning import begin_training, open_run_generator
from search_to_signal.run.profile import Profile
from search_to_signal.search.member import Prompt

CARD_MIB = 24_564  # the paper's RTX 4090 and 3090 as nvidia-smi reports them
_LIKE_QWEN = {"rope_theta": 1_000_000.0, "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "vocab_size": 152_064,
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
        **_LIKE_QWEN,
    },
    "qwen3-4b": {
        "model_type": "qwen3",
        "vocab_size": 151_936,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
        **_LIKE_QWEN,
    },
}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
ADVANTAGES = np.array([1.0, 0.5, -0.5, -1.0])
LOUD = 0.05  # standard deviation of an adapter that nobody can overlook


@dataclass
class Findings:
    """What was claimed and did not hold."""

    failed: list[str] = field(default_factory=list)

    def claim(self, text: str, holds: bool) -> None:
        """Print a claim with its verdict."""
        say(f"{text}: {'ok' if holds else 'FAILED'}")
        if not holds:
            self.failed.append(text)


def say(text: str) -> None:
    """Print at once: an engine may end the process."""
    print(f"## {text}", flush=True)


def make(directory: Path, shape: str, tokens: Path, layers: int | None) -> None:
    """Write a random model in bfloat16, from seed 0, with the tokenizer of another directory."""
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer, sizes = load_tokenizer(tokens), dict(SHAPES[shape])
    sizes["num_hidden_layers"] = layers or sizes["num_hidden_layers"]
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = AutoConfig.for_model(sizes.pop("model_type"), **sizes, **ends, bos_token_id=None)
    config.torch_dtype = "bfloat16"
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, **in_precision(torch.bfloat16))
    model.save_pretrained(directory, max_shard_size="4GB")
    for name in TOKENIZER_FILES:
        if (tokens / name).is_file():
            shutil.copy(tokens / name, directory / name)
    count = sum(p.numel() for p in model.parameters()) / 1e9
    say(f"{count:.2f} G random weights, {sizes['num_hidden_layers']} layers")


def settings(arguments: argparse.Namespace) -> RunConfig:
    """A trained run of the paper's profile with this model, backend and share of memory."""
    profile = load_toml(PROFILES / "paper.toml", Profile)
    share = profile.generation.engine.gpu_memory_utilization * CARD_MIB * 2**20 / card_bytes()
    engine = msgspec.structs.replace(profile.generation.engine, gpu_memory_utilization=share)
    generation = msgspec.structs.replace(
        profile.generation,
        backend=arguments.backend,
        engine=engine,
        max_completion_tokens=arguments.completion,
    )
    return RunConfig(
        purpose="smoke",
        problem=profile.problem,
        split=profile.split,
        model=str(arguments.model),
        condition="native",
        seed=42,
        groups=1,
        threads=1,
        search=profile.search,
        generation=generation,
        learner=profile.learner,
        evaluation=profile.evaluation,
    )


def card_bytes() -> int:
    """The memory of the card that is there."""
    return int(torch.cuda.get_device_properties(0).total_memory)


def memory() -> str:
    """The most that torch held since the last reset, and what the process holds of the card now."""
    free, total = torch.cuda.mem_get_info()
    peaks = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), total - free)
    names = ("peak allocated", "peak reserved", "card in use")
    return ", ".join(
        f"{name} {peak / 2**20:.0f} MiB ({100 * peak / 2**20 / CARD_MIB:.1f} % of 24 GB)"
        for name, peak in zip(names, peaks, strict=True)
    )


def measured(label: str, work: Callable[[], Any]) -> tuple[Any, float]:
    """Run something; print its time and memory."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    say(f"{label}: {seconds:.2f} s; {memory()}")
    return result, seconds


def prompt_of(tokenizer: Any, tokens: int, word: str = "alpha") -> Prompt:
    """A prompt of at most so many tokens with its template, as few below as words allow."""

    def length(words: int) -> int:
        chat = [{"role": "system", "content": ""}, {"role": "user", "content": f" {word}" * words}]
        return len(encoded(tokenizer, chat)[1])

    low, high = 1, tokens
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if length(middle) <= tokens else (low, middle - 1)
    return Prompt("", f" {word}" * low)


def global_state() -> tuple[Any, ...]:
    """What the three global random streams would give next."""
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().numpy().tobytes()


def tokens_of(generation: Generation) -> list[tuple[int, ...]]:
    """The sampled tokens of a group."""
    return [completion.ids for completion in generation.completions]


def same_start(first: Generation, second: Generation) -> str:
    """After how many tokens two groups differ, completion by completion."""
    pairs = zip(tokens_of(first), tokens_of(second), strict=True)
    return str([next((i for i, (a, b) in enumerate(zip(*p, strict=False)) if a != b), -1) for p in pairs])


def generate(generator: Any, prompt: Prompt, label: str, seed: int) -> Generation:
    """One group, with its speed."""
    generation: Generation
    generation, seconds = measured(label, lambda: generator.generate(prompt, seed))
    lengths = [len(ids) for ids in tokens_of(generation)]
    read, speed, step = len(generation.prompt_ids), sum(lengths) / seconds, 1000 * seconds / max(lengths)
    say(f"  {read} prompt tokens, {lengths} sampled, {speed:.0f} tokens/s, {step:.1f} ms a step")
    return generation


def sampling(generator: Any, prompt: Prompt, found: Findings, brief: bool) -> Generation:
    """Speed, and what equal and different seeds give."""
    first = generate(generator, prompt, "the first group", 2)
    if brief:
        return first
    again = generate(generator, prompt, "its seed again", 2)
    found.claim("equal seeds give equal tokens", tokens_of(first) == tokens_of(again))
    found.claim("completions of a group differ", len(set(tokens_of(first))) == len(first.completions))
    other = generator.generate(prompt, 3)
    found.claim("another seed gives other tokens", not set(tokens_of(first)) & set(tokens_of(other)))
    forget = generator._forget_prompts
    generator._forget_prompts = lambda: None
    warm = generator.generate(prompt, 2)
    generator._forget_prompts = forget
    say(f"  with the cached prompt kept the same seed first differs at tokens {same_start(first, warm)}")
    return first


def step(learner: GrpoLearner, prompt_ids: Sequence[int], rows: list[tuple[int, ...]], label: str) -> None:
    """One optimizer step of the paper's learner."""
    result, _ = measured(label, lambda: learner.step(TrainingGroup(prompt_ids, rows, ADVANTAGES)))
    say(f"  loss {result.loss:.5f}, KL {result.kl:.2e}, gradient norm {result.grad_norm:.3e}")


def teach(learner: GrpoLearner, generation: Generation, found: Findings) -> None:
    """Steps on the group, and one on completions that end early; a cap that is too low is told and lifted."""
    ids = tokens_of(generation)
    ragged = [row[: len(row) * (4 - i) // 4] for i, row in enumerate(ids)]
    for label, rows in (("update 1", ids), ("update 2", ids), ("update 3", ids), ("update, ragged", ragged)):
        try:
            step(learner, generation.prompt_ids, rows, label)
        except torch.OutOfMemoryError as error:
            say(f"  {error}; {memory()}")
            found.claim("the update fits", False)
            learner.optimizer.zero_grad(set_to_none=True)
            torch.cuda.set_per_process_memory_fraction(1.0)
            step(learner, generation.prompt_ids, rows, f"{label} without the cap")


@torch.no_grad()
def likelihoods(learner: GrpoLearner, generation: Generation) -> tuple[float, float]:
    """Mean log-probability of the sampled tokens without the adapter and with it."""
    group: TokenGroup = learner.group(generation.prompt_ids, tokens_of(generation))
    mask = group.completion_mask.bool()
    rows = [group.rows(slice(row, row + 1)) for row in range(len(mask))]  # in the memory of an update
    off, on = (
        learner.reference(group),
        torch.cat([token_log_probabilities(learner.model, row) for row in rows]),
    )
    return float(off[mask].float().mean()), float(on[mask].float().mean())


def hand_over(
    generator: Any, learner: GrpoLearner, prompt: Prompt, base: Generation, found: Findings
) -> None:
    """A loud adapter speaks in the very next group; so does its successor; the learner's own model agrees."""
    small = {name: tensor.clone() for name, tensor in adapter_tensors(learner.model).items()}
    generator.load_adapter(TrainedAdapter(learner.model))
    taught = generate(generator, prompt, "a group with the taught adapter", 2)
    say(f"  differs from the base's at tokens {same_start(base, taught)}")
    stream = torch.Generator().manual_seed(5)
    loud = {
        name: torch.randn(tensor.shape, generator=stream).to(tensor) * LOUD if "lora_B" in name else tensor
        for name, tensor in small.items()
    }
    set_adapter(learner.model, loud)
    off, on = likelihoods(learner, base)
    say(f"  mean log-probability of the base's tokens: base {off:.4f}, loud adapter {on:.4f}")
    found.claim("the base's tokens come from the base", off > on)
    generator.load_adapter(TrainedAdapter(learner.model))
    spoken = generate(generator, prompt, "the first group with a loud adapter", 2)
    off, on = likelihoods(learner, spoken)
    say(f"  mean log-probability of its tokens: base {off:.4f}, loud adapter {on:.4f}")
    found.claim("the first group after adoption comes from the adapter", on > off)
    found.claim("and its tokens are others", tokens_of(spoken) != tokens_of(base))
    set_adapter(learner.model, small)
    generator.load_adapter(TrainedAdapter(learner.model))
    back = generator.generate(prompt, 2)
    say(f"  the taught adapter again, under another id, differs at tokens {same_start(taught, back)}")
    same = generator.generate(prompt, 2)
    say(f"  and once more, under the same id, differs at tokens {same_start(back, same)}")
    off, on = likelihoods(learner, back)
    set_adapter(learner.model, loud)
    _, wrong = likelihoods(learner, back)
    set_adapter(learner.model, small)
    say(f"  mean log-probability of its tokens: base {off:.4f}, taught {on:.4f}, loud {wrong:.4f}")
    found.claim("the successor of an adapter replaces it", on > wrong)


def run(arguments: argparse.Namespace) -> int:
    """Everything in order; the number of failed claims."""
    names = (
        "torch",
        "transformers",
        "peft",
        "trl",
        "bitsandbytes",
        "vllm",
        "unsloth",
        "unsloth_zoo",
        "xformers",
    )
    say(", ".join(f"{name} {version(name)}" for name in names))
    card = torch.cuda.get_device_properties(0)
    say(f"{card.name}, {card.total_memory / 2**20:.0f} MiB, CUDA {torch.version.cuda}")
    if arguments.cap_mib:
        torch.cuda.set_per_process_memory_fraction(arguments.cap_mib * 2**20 / card.total_memory)
        say(f"torch may hold {arguments.cap_mib} MiB")
    found, config = Findings(), settings(arguments)
    scratch = Path(tempfile.mkdtemp())
    random.seed(11)
    np.random.seed(11)
    torch.manual_seed(11)
    before = global_state()
    generator, _ = measured(
        f"start of {arguments.backend}", lambda: open_run_generator(config, config.generation, scratch)
    )
    changed = [
        name
        for name, a, b in zip(("random", "numpy", "torch"), before, global_state(), strict=True)
        if a != b
    ]
    say(f"  global random streams that the start changed: {changed or 'none'}")
    prompt = prompt_of(generator.tokenizer, config.generation.max_prompt_tokens)
    base = sampling(generator, prompt, found, arguments.brief)
    training, _ = measured("the learner's base and adapter", lambda: begin_training(config, generator))
    say(f"  first adapter {training.initial_sha256[:16]}")
    teach(training.learner, base, found)
    if not arguments.brief:
        hand_over(generator, training.learner, prompt, base, found)
    shutil.rmtree(scratch, ignore_errors=True)
    say(f"{len(found.failed)} claims failed {found.failed or ''}")
    return len(found.failed)


def main() -> None:
    """Make a model directory, or run an engine on one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("make", "run"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-7b")
    parser.add_argument("--tokens", type=Path, default=MODELS / "qwen2-2.1m")
    parser.add_argument("--layers", type=int, help="fewer or more than the shape has")
    parser.add_argument("--backend", choices=("vllm", "unsloth"), default="vllm")
    parser.add_argument("--completion", type=int, default=1024)
    parser.add_argument("--cap-mib", type=int)
    parser.add_argument("--brief", action="store_true", help="one group and its updates alone")
    arguments = parser.parse_args()
    if arguments.what == "make":
        make(arguments.model, arguments.shape, arguments.tokens, arguments.layers)
        return
    sys.exit(min(run(arguments), 1))


if __name__ == "__main__":
    main()
