"""Where recorded tokens lie in the cumulative shares of a model that reads them, in one pass."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from search_to_signal.models.local import open_base_model
from search_to_signal.models.sampling import Filters, uniform_numbers
from search_to_signal.models.settings import GenerationSettings, ModelLoading

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
    numbers = uniform_numbers(seeds, settings.max_completion_tokens)
    intervals = []
    logits = logits_by_slice(model, prompt_ids, completions)
    for tokens, row, slices in zip(completions, numbers, logits, strict=True):
        parts, done = [], 0
        for part in slices:
            ids = torch.tensor(list(tokens[done : done + len(part)]), device=part.device)
            parts.append(bounds(part, ids, settings))
            done += len(part)
        below, above = (torch.cat(side).cpu().numpy() for side in zip(*parts, strict=True))
        intervals.append(Intervals(below, above, row[: len(tokens)].numpy()))
    return tuple(intervals)


def logits_by_slice(
    model: Any, prompt_ids: Sequence[int], completions: Sequence[Sequence[int]]
) -> Iterator[Iterator[torch.Tensor]]:
    """Of every completion the logits (rows, vocabulary) before its tokens, in slices.

    The prompt is read once, and a completion's slices have to be taken before those of the next.
    """
    cache = DynamicCache()
    ids = torch.tensor([list(prompt_ids)], device=model.device)
    out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    for tokens in completions:
        cache.crop(len(prompt_ids))
        yield _slices(model, cache, out.logits[0, -1:], tokens)


def _slices(
    model: Any, cache: DynamicCache, first: torch.Tensor, tokens: Sequence[int]
) -> Iterator[torch.Tensor]:
    yield first
    # Nothing is predicted from the last token.
    for start in range(0, len(tokens) - 1, _SLICE):
        part = list(tokens[start : min(start + _SLICE, len(tokens) - 1)])
        ids = torch.tensor([part], device=model.device)
        yield model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0]


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
