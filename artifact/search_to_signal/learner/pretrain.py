"""Train an embedded model from nothing on the generated corpus."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shape of the decoder; ``model_type`` is a transformers architecture such as qwen2 or llama."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    initializer_range: float


class Optimization(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Budget and optimizer of pretraining; learning rate warms up, then falls on a cosine to a tenth."""

    examples: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float
    max_grad_norm: float
    prompt_loss_weight: float


@dataclass(frozen=True)
class Example:
    """Token ids of one example; the first ``prompt_length`` belong to the prompt."""

    ids: NDArray[np.int64]
    prompt_length: int


def build_model(architecture: Architecture, vocabulary_size: int, end_id: int, pad_id: int, seed: int) -> Any:
    """A freshly initialised float32 model; the seed alone decides its weights."""
    torch.manual_seed(seed)
    shape = {name: getattr(architecture, name) for name in architecture.__struct_fields__}
    config = AutoConfig.for_model(
        shape.pop("model_type"),
        vocab_size=vocabulary_size,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_id,
        pad_token_id=pad_id,
        use_cache=True,
        **shape,
    )
    config.sliding_window = None  # every context fits; without this each load warns
    return AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32, attn_implementation="sdpa")


def batches(examples: Iterable[Example], size: int, rng: np.random.Generator) -> list[list[Example]]:
    """Batches of similar length: the examples are sorted by length, then shuffled as whole batches."""
    ordered = sorted(examples, key=lambda e: len(e.ids))
    starts = rng.permutation(len(ordered) // size) * size
    return [ordered[start : start + size] for start in starts.tolist()]


def _padded(batch: list[Example], pad_id: int, prompt_weight: float) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(example.ids) for example in batch)
    ids = torch.full((len(batch), width), pad_id)
    weight = torch.zeros((len(batch), width))
    for row, example in enumerate(batch):
        ids[row, : len(example.ids)] = torch.from_numpy(example.ids)
        weight[row, : example.prompt_length] = prompt_weight
        weight[row, example.prompt_length : len(example.ids)] = 1.0
    return ids, weight


def _loss(model: Any, ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    # Padding stands on the right of a causal model, so no attention mask is needed.
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    share = weight[:, 1:].flatten()
    return (nll * share).sum() / share.sum()


def _rate(step: int, steps: int, settings: Optimization) -> float:
    warm = min(1.0, (step + 1) / settings.warmup_steps)
    return settings.learning_rate * warm * (0.55 + 0.45 * math.cos(math.pi * step / steps))


@dataclass
class Pretraining:
    """A run of pretraining that can be put down after any step and taken up again.

    ``seconds`` is the time that its steps took, batches included.
    """

    model: Any
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Write everything needed to go on, atomically."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
        }
        torch.save(state, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").replace(path)

    def load(self, path: Path) -> None:
        """Take up what ``save`` put down."""
        state = torch.load(path, map_location=self.model.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]


def begin(model: Any, settings: Optimization) -> Pretraining:
    """A training run at step 0."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=settings.weight_decay
    )
    return Pretraining(model, optimizer)


def train(
    training: Pretraining,
    stream: Iterator[list[Example]],
    settings: Optimization,
    *,
    pad_id: int,
    report: Callable[[int, int, float], None],
) -> None:
    """Minimise the weighted next-token loss in place; ``report(step, steps, loss)`` follows every step.

    ``stream`` has the batches from ``training.step`` on.
    """
    model, optimizer = training.model, training.optimizer
    steps = settings.examples // settings.batch_size
    model.train()
    started = time.monotonic() - training.seconds
    for step, batch in zip(range(training.step, steps), stream, strict=False):
        ids, weight = _padded(batch, pad_id, settings.prompt_loss_weight)
        loss = _loss(model, ids.to(model.device), weight.to(model.device))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, steps, settings)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        training.step, training.seconds = step + 1, time.monotonic() - started
        report(training.step, steps, float(loss.detach()))
    model.eval()
