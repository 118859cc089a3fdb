"""Where recorded tokens lie in the cumulative shares of a model that reads them, in one pass."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from search_to_signal.generators.base_model import open_base_model
from search_to_signal.generators.sampling import Filters, uniform_numbers
from search_to_signal.generators.settings import GenerationSettings, ModelLoading

Numbers = NDArray[np.float64]

# Tokens read at once: beyond these, the shares of a large vocabulary take a gigabyte.
_SLICE = 128


class Intervals(NamedTuple):
    """Of every token of a completion (tokens,): where its share of [0, 1) begins and ends, and the number.

    The sampler draws a token where ``below <= number < above``.
    """

    below: Numbers
    above: Numbers
    number: Numbers


def open_for_reading(directory: Path, loading: ModelLoading) -> Any:
    """The model on this processor in float32, with the weights that ``loading`` rounds to: no card is needed.

    Raises ModelFileError as ``open_base_model`` does.
    """
    return open_base_model(directory, ModelLoading(dtype=loading.dtype)).float()


@torch.inference_mode()
def token_intervals(
    model: Any,
    prompt_ids: Sequence[int],
    completions: Sequence[Sequence[int]],
    seeds: Sequence[int],
    settings: GenerationSettings,
) -> tuple[Intervals, ...]:
    """The intervals of every completion's tokens, and the numbers of its seed's stream, one seed each.

    The shares are those that ``sampling`` draws from. Every id has to be one of the model's vocabulary, and
    no completion longer than the settings' limit.
    """
    cache = DynamicCache()
    ids = torch.tensor([list(prompt_ids)], device=model.device)
    out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    numbers = uniform_numbers(seeds, settings.max_completion_tokens)
    found = []
    for tokens, row in zip(completions, numbers, strict=True):
        cache.crop(len(prompt_ids))
        found.append(_intervals(model, cache, out.logits[0, -1:], tokens, row, settings))
    return tuple(found)


def _intervals(
    model: Any,
    cache: DynamicCache,
    first: torch.Tensor,
    tokens: Sequence[int],
    numbers: torch.Tensor,
    settings: GenerationSettings,
) -> Intervals:
    ids = torch.tensor(list(tokens), device=model.device)
    sought = numbers[: len(ids)].to(model.device)
    parts = [bounds(first, ids[:1], settings)]
    # The last token is read by nobody.
    for start in range(0, len(ids) - 1, _SLICE):
        end = min(start + _SLICE, len(ids) - 1)
        out = model(input_ids=ids[None, start:end], past_key_values=cache, use_cache=True)
        parts.append(bounds(out.logits[0], ids[start + 1 : end + 1], settings))
    below, above = (torch.cat(side).cpu().numpy() for side in zip(*parts, strict=True))
    return Intervals(below, above, sought.cpu().numpy())


def bounds(
    logits: torch.Tensor, tokens: torch.Tensor, settings: GenerationSettings
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both ends of the intervals of tokens (rows,), from the logits (rows, vocabulary) before each."""
    kept = Filters(settings.top_k, settings.top_p)(logits.float() / settings.temperature)
    shares = torch.softmax(kept, dim=-1).cumsum(dim=-1, dtype=torch.float64)
    above = shares.gather(1, tokens[:, None])[:, 0]
    below = shares.gather(1, (tokens - 1).clamp(min=0)[:, None])[:, 0]
    whole = shares[:, -1]
    return torch.where(tokens == 0, 0.0, below) / whole, above / whole
