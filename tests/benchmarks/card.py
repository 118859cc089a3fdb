"""A group of four on a card by part: prompt and token step, update, checksum of the adapter."""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from search_to_signal.learner.adapter import adapter_sha256, attach_adapter
from search_to_signal.learner.base import TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.base import encoded
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import CardSampler, StepSettings, load_tokenizer, open_base_model
from search_to_signal.models.sampling import NO_FILTERS, draw_in_blocks, uniform_numbers
from search_to_signal.models.settings import ModelLoading
from search_to_signal.problems import get_problem

SEEDS, TEMPERATURE = (1, 2, 3, 4), 0.9
ADVANTAGES = np.array([1.0, 0.5, -0.5, -1.0])


def now() -> float:
    """The clock, once the card has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of three."""
    times = []
    for _ in range(3):
        start = now()
        work()
        times.append(now() - start)
    return min(times)


def prompt_of(directory: Path) -> list[int]:
    """A prompt of the length that a search asks, with three programs in it."""
    code = "\n\n".join([f"```python\n{get_problem('tsp').seed.code}\n```"] * 3)
    chat: list[Any] = [{"role": "user", "content": f"Write a better heuristic than these:\n{code}"}]
    return list(encoded(load_tokenizer(directory), chat)[1])


@torch.no_grad()
def drawn_again(model: Any, prompt: list[int], ids: tuple[int, ...], row: int) -> int:
    """How many tokens of a row the model's forward pass draws from the row's numbers."""
    logits = model(input_ids=torch.tensor([[*prompt, *ids]], device=model.device), use_cache=False).logits[0]
    given = uniform_numbers(SEEDS, len(ids))[row].to(model.device)
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)  # its cumulative sums of one row are not counted as such
    shares = logits[len(prompt) - 1 : -1].float()
    drawn = [
        int(draw_in_blocks(shares[i : i + 1], TEMPERATURE, NO_FILTERS, given[i : i + 1])[0])
        for i in range(len(ids))
    ]
    torch.use_deterministic_algorithms(deterministic)
    return sum(one == other for one, other in zip(drawn, ids, strict=True))


def card(arguments: Sequence[str]) -> None:
    """Nothing ends a completion, so that every row goes to the limit."""
    parser = argparse.ArgumentParser(prog="card", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args(arguments)
    directory = model_directory(given.model)
    loading = ModelLoading(device=given.device, dtype="bfloat16" if given.device == "cuda" else "float32")
    settings = LearnerSettings(learning_rate=1e-4, gradient_checkpointing=True)
    model = attach_adapter(open_base_model(directory, loading), settings, seed=1)
    prompt = prompt_of(directory)
    drawing = StepSettings(TEMPERATURE, NO_FILTERS, frozenset({-1}), given.tokens)
    sampler = CardSampler(model, len(SEEDS), len(prompt) + given.tokens, drawing)
    group = sampler.sample(prompt, SEEDS)
    seconds = fastest(lambda: sampler.sample(prompt, SEEDS))
    print(f"prompt {len(prompt)} tokens, {len(SEEDS)} rows of {given.tokens}: {seconds:.3f} s")
    print(f"  a token step: {1000 * seconds / given.tokens:.2f} ms")
    learner = GrpoLearner(model, settings, pad_id=0)
    taken = TrainingGroup(prompt, group.completion_ids, ADVANTAGES)
    learner.step(taken)
    print(f"update: {fastest(lambda: learner.step(taken)):.3f} s")
    print(f"checksum of the adapter: {fastest(lambda: adapter_sha256(model)):.3f} s")
    if given.device == "cuda":
        print(f"peak memory: {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
    fresh = sampler.sample(prompt, SEEDS)
    again = drawn_again(model, prompt, fresh.completion_ids[2], 2)
    print(f"tokens that the forward pass draws, too: {again} of {len(fresh.completion_ids[2])}")
    print(f"sampled twice, equal: {fresh == sampler.sample(prompt, SEEDS)}")
