"""Sampling with a key-value cache and a shared prompt prefix: temperature and nothing else (D23)."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache


@dataclass(frozen=True)
class SampledGroup:
    """Token ids of G completions of one prompt; the end token is included where it was drawn."""

    completion_ids: tuple[tuple[int, ...], ...]
    truncated: tuple[bool, ...]


def _draw(logits: torch.Tensor, temperature: float, source: torch.Generator) -> torch.Tensor:
    probabilities = torch.softmax(logits.float() / temperature, dim=-1)
    return torch.multinomial(probabilities, 1, generator=source)[:, 0]


def _prefill(model: Any, prompt_ids: list[int], count: int) -> tuple[Any, torch.Tensor]:
    ids = torch.tensor([prompt_ids], device=model.device)
    out = model(input_ids=ids, past_key_values=DynamicCache(), use_cache=True, logits_to_keep=1)
    cache = out.past_key_values
    cache.batch_repeat_interleave(count)
    return cache, out.logits[:, -1].repeat(count, 1)


def _cut(row: list[int], end_id: int) -> tuple[int, ...]:
    return tuple(row[: row.index(end_id) + 1] if end_id in row else row)


@torch.inference_mode()
def sample_group(
    model: Any,
    prompt_ids: list[int],
    *,
    count: int,
    max_new_tokens: int,
    temperature: float,
    end_id: int,
    seed: int,
) -> SampledGroup:
    """Sample ``count`` completions of one prompt; equal arguments give equal tokens on one machine."""
    source = torch.Generator(device=model.device).manual_seed(seed)
    cache, logits = _prefill(model, prompt_ids, count)
    done = torch.zeros(count, dtype=torch.bool, device=model.device)
    columns: list[torch.Tensor] = []
    for _ in range(max_new_tokens):
        token = _draw(logits, temperature, source)
        columns.append(token)
        done |= token == end_id
        if bool(done.all()) or len(columns) == max_new_tokens:
            break
        logits = model(input_ids=token[:, None], past_key_values=cache, use_cache=True).logits[:, -1]
    rows = torch.stack(columns, dim=1).tolist()
    completions = tuple(_cut(row, end_id) for row in rows)
    return SampledGroup(completions, tuple(ids[-1] != end_id for ids in completions))
